/** Shows the fair share of each user, and all suspensions. */

import {
  QuotaSharesDocument,
  type QuotaSharesQuery,
  SuspensionsDocument,
  type SuspensionsQuery,
} from '../../../generated/operations.js';
import { formatBytes, formatNumber, share } from '../../format';
import { Bar } from '../../parts/bar';
import { CassetteTape } from '../../parts/icons';
import { Moment } from '../../parts/moment';
import type { Column } from '../../parts/table';
import { linkTo } from '../../route';
import { createSitePage } from './list';
import { ServiceMenu, ServiceState, serviceColumns } from './service';

type User = NonNullable<QuotaSharesQuery['list']>['edges'][number]['node'];

const userColumns: Column<User>[] = [
  {
    title: 'User',
    cell: ({ user }) => (
      <a href={linkTo(['quotas', user])}>
        <bdi>{user}</bdi>
      </a>
    ),
  },
  {
    title: 'Quota',
    cell: ({ user, used, size }) => (
      <span class="usage">
        <Bar value={share(used, size)} label={`Quota used by ${user}`} />
        {formatBytes(used)} of {formatBytes(size)}
      </span>
    ),
  },
  { title: 'Weight', isNumber: true, cell: ({ weight }) => weight },
  {
    title: 'Recent drive minutes',
    isNumber: true,
    cell: ({ driveSeconds }) => formatNumber(Math.round(driveSeconds / 60)),
  },
  ...serviceColumns<User>('USER', ({ user }) => user),
];

export const UsersPage = createSitePage({
  title: 'Users',
  document: QuotaSharesDocument,
  parts: ['QUEUE', 'SUSPENSIONS'],
  columns: userColumns,
  keyOf: ({ user }) => user,
});

export type SuspensionRow = NonNullable<SuspensionsQuery['list']>['edges'][number]['node'];

export function SuspendedName({ kind, name }: Pick<SuspensionRow, 'kind' | 'name'>) {
  if (kind !== 'VOLUME') return <bdi>{name}</bdi>;
  return (
    <a href={linkTo(['volumes', name])}>
      <bdi>{name}</bdi>
    </a>
  );
}

const suspensionColumns: Column<SuspensionRow>[] = [
  { title: 'Name', cell: (row) => <SuspendedName {...row} /> },
  { title: 'Kind', cell: ({ kind }) => kind.toLowerCase() },
  { title: 'State', cell: (row) => <ServiceState suspension={row} /> },
  { title: 'Since', cell: ({ since }) => <Moment at={since} isFull side="past" /> },
  {
    title: 'Next try',
    cell: ({ nextTryAt }) => (nextTryAt ? <Moment at={nextTryAt} side="ahead" /> : 'after an operator resumes it'),
  },
  {
    title: 'Actions',
    isUntitled: true,
    isNumber: true,
    cell: (row) => <ServiceMenu kind={row.kind} name={row.name} suspension={row} />,
  },
];

export const SuspensionsPage = createSitePage({
  title: 'Out of service',
  document: SuspensionsDocument,
  parts: ['SUSPENSIONS'],
  columns: suspensionColumns,
  keyOf: ({ kind, name }) => `${kind}:${name}`,
  none: ['Everything is in service', CassetteTape],
});
