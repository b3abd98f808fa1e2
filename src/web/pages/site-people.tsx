/** Shows the fair share of each user, all suspensions, and the tape copies that failed verification. */
import {
  QuotaSharesDocument,
  type QuotaSharesQuery,
  SuspensionsDocument,
  type SuspensionsQuery,
  VerificationsDocument,
  type VerificationsQuery,
} from '../../generated/operations.js';
import { formatBytes, formatNumber, share } from '../format';
import { Bar } from '../parts/bar';
import { Moment } from '../parts/moment';
import { Service } from '../parts/service';
import type { Column } from '../parts/table';
import { linkTo } from '../route';
import { createSitePage } from './site-list';

const userColumns: Column<NonNullable<QuotaSharesQuery['list']>['edges'][number]['node']>[] = [
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
      <>
        <Bar value={share(used, size)} label={`Quota used by ${user}`} />
        {formatBytes(used)} of {formatBytes(size)}
      </>
    ),
  },
  { title: 'Weight', isNumber: true, cell: ({ weight }) => weight },
  {
    title: 'Recent drive minutes',
    isNumber: true,
    cell: ({ driveSeconds }) => formatNumber(Math.round(driveSeconds / 60)),
  },
  { title: 'Service', cell: ({ user, suspension }) => <Service kind="USER" name={user} suspension={suspension} /> },
];

export const UsersPage = createSitePage({
  title: 'Users',
  document: QuotaSharesDocument,
  parts: ['QUEUE', 'SUSPENSIONS'],
  columns: userColumns,
  keyOf: ({ user }) => user,
});

const suspensionColumns: Column<NonNullable<SuspensionsQuery['list']>['edges'][number]['node']>[] = [
  { title: 'Name', cell: ({ name }) => <bdi>{name}</bdi> },
  { title: 'Kind', cell: ({ kind }) => kind.toLowerCase() },
  { title: 'Since', cell: ({ since }) => <Moment at={since} isFull side="past" /> },
  {
    title: 'Next try',
    cell: ({ nextTryAt }) => (nextTryAt ? <Moment at={nextTryAt} side="ahead" /> : 'after an operator resumes it'),
  },
  {
    title: 'Service',
    cell: (suspension) => <Service kind={suspension.kind} name={suspension.name} suspension={suspension} />,
  },
];

export const SuspensionsPage = createSitePage({
  title: 'Out of service',
  document: SuspensionsDocument,
  parts: ['SUSPENSIONS'],
  columns: suspensionColumns,
  keyOf: ({ kind, name }) => `${kind}:${name}`,
});

const failureColumns: Column<NonNullable<VerificationsQuery['list']>['edges'][number]['node']>[] = [
  { title: 'File', cell: ({ file }) => <code>{file.path}</code> },
  { title: 'Class', cell: ({ errorClass }) => errorClass.toLowerCase() },
  { title: 'Error', cell: ({ error }) => <bdi>{error}</bdi> },
  { title: 'Tries', isNumber: true, cell: ({ attempts }) => attempts },
  { title: 'Last', cell: ({ at }) => <Moment at={at} side="past" /> },
  { title: 'Next', cell: ({ nextTryAt }) => (nextTryAt ? <Moment at={nextTryAt} side="ahead" /> : 'on request') },
];

export const FailuresPage = createSitePage({
  title: 'Tape copies that could not be verified',
  document: VerificationsDocument,
  parts: ['QUEUE'],
  columns: failureColumns,
  keyOf: ({ file }) => file.path,
});
