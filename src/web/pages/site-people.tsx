/** Users with their shares, what is out of service, and tape copies that could not be confirmed. */
import {
  SiteFailuresDocument,
  type SiteFailuresQuery,
  SiteSuspensionsDocument,
  type SiteSuspensionsQuery,
  SiteUsersDocument,
  type SiteUsersQuery,
} from '../../generated/web-operations';
import { formatBytes, formatNumber, share } from '../format';
import { useSiteLook } from '../live-site';
import { Bar } from '../parts/bar';
import { Moment } from '../parts/moment';
import { usePlaces } from '../parts/pages';
import { Service } from '../parts/service';
import type { Column } from '../parts/table';
import { linkTo } from '../route';
import { PAGE, SiteList } from './site-list';

const userColumns: Column<SiteUsersQuery['quotas']['edges'][number]['node']>[] = [
  { title: 'User', cell: ({ user }) => <a href={linkTo(['quotas', user])}>{user}</a> },
  {
    title: 'Quota',
    cell: ({ user, used, size }) => (
      <>
        <Bar value={share(used, size)} label={`Quota of ${user} that is used`} />
        {formatBytes(used)} of {formatBytes(size)}
      </>
    ),
  },
  { title: 'Weight', isNumber: true, cell: ({ weight }) => weight },
  {
    title: 'Drive minutes of late',
    isNumber: true,
    cell: ({ driveSeconds }) => formatNumber(Math.round(driveSeconds / 60)),
  },
  { title: 'Service', cell: ({ user, suspension }) => <Service kind="USER" name={user} suspension={suspension} /> },
];

export function UsersPage() {
  const places = usePlaces();
  const look = useSiteLook(SiteUsersDocument, { first: PAGE, after: places.after }, 'QUEUE', 'SUSPENSIONS');
  return (
    <SiteList
      title="Users"
      {...{ look, places }}
      list={({ quotas }) => quotas}
      columns={userColumns}
      keyOf={({ id }) => id}
    />
  );
}

const suspensionColumns: Column<SiteSuspensionsQuery['suspensions']['edges'][number]['node']>[] = [
  { title: 'Name', cell: ({ name }) => name },
  { title: 'Kind', cell: ({ kind }) => (kind === 'BACKEND' ? 'library' : kind.toLowerCase()) },
  { title: 'Since', cell: ({ since }) => <Moment at={since} isFull side="past" /> },
  {
    title: 'Tried again',
    cell: ({ nextTry }) => (nextTry ? <Moment at={nextTry} side="ahead" /> : 'once it is resumed'),
  },
  {
    title: 'Service',
    cell: (suspension) => <Service kind={suspension.kind} name={suspension.name} suspension={suspension} />,
  },
];

export function SuspensionsPage() {
  const places = usePlaces();
  const look = useSiteLook(SiteSuspensionsDocument, { first: PAGE, after: places.after }, 'SUSPENSIONS');
  return (
    <SiteList
      title="Out of service"
      {...{ look, places }}
      list={({ suspensions }) => suspensions}
      columns={suspensionColumns}
      keyOf={({ kind, name }) => `${kind}:${name}`}
    />
  );
}

const failureColumns: Column<SiteFailuresQuery['verifications']['edges'][number]['node']>[] = [
  { title: 'File', cell: ({ file }) => <code>{file.path}</code> },
  { title: 'Class', cell: ({ errorClass }) => errorClass.toLowerCase() },
  { title: 'Error', cell: ({ error }) => error },
  { title: 'Tries', isNumber: true, cell: ({ attempts }) => attempts },
  { title: 'Last', cell: ({ at }) => <Moment at={at} side="past" /> },
  { title: 'Next', cell: ({ nextTry }) => (nextTry ? <Moment at={nextTry} side="ahead" /> : 'when somebody asks') },
];

export function FailuresPage() {
  const places = usePlaces();
  const look = useSiteLook(SiteFailuresDocument, { first: PAGE, after: places.after }, 'QUEUE');
  return (
    <SiteList
      title="Tape copies that could not be confirmed"
      {...{ look, places }}
      list={({ verifications }) => verifications}
      columns={failureColumns}
      keyOf={({ file }) => file.id}
    />
  );
}
