/** Shows the audit log: each change, who made it, and its result. */
import { useState } from 'preact/hooks';
import { AuditDocument, type AuditRowFragment } from '../../generated/operations.js';
import { useSiteQuery } from '../live-site';
import { Moment } from '../parts/moment';
import { usePaging } from '../parts/paging';
import type { Column } from '../parts/table';
import { PAGE, SiteList } from './site-list';

type Row = AuditRowFragment;

const columns: Column<Row>[] = [
  { title: 'When', cell: ({ at }) => <Moment at={at} isFull side="past" /> },
  {
    title: 'Caller',
    cell: ({ caller, authentication, address }) => (
      <>
        <bdi>{caller || 'unknown'}</bdi> ({authentication.toLowerCase()}
        {address ? `, ${address}` : ''})
      </>
    ),
  },
  { title: 'Operation', cell: ({ operation }) => operation },
  {
    title: 'Object',
    cell: ({ objectKind, object }) => (
      <>
        {objectKind.toLowerCase()} <bdi>{object}</bdi>
      </>
    ),
  },
  {
    title: 'Result',
    cell: ({ result, errorCode, count }) => `${errorCode ?? result}${count > 1 ? `, ${count} times` : ''}`,
  },
];

const filters = { caller: 'Caller', operation: 'Operation', object: 'Object' } as const;
type Chosen = Partial<Record<keyof typeof filters, string>>;

export function AuditPage() {
  const paging = usePaging();
  const [chosen, setChosen] = useState<Chosen>({});
  const look = useSiteQuery(AuditDocument, { first: PAGE, after: paging.after, ...chosen }, 'AUDIT');
  const choose = (event: Event) => {
    event.preventDefault();
    const given = new FormData(event.currentTarget as HTMLFormElement);
    paging.restart();
    const named = Object.keys(filters).flatMap((name) => (given.get(name) ? [[name, String(given.get(name))]] : []));
    setChosen(Object.fromEntries(named));
  };
  return (
    <SiteList title="Audit" {...{ look, paging, columns }} keyOf={(row) => JSON.stringify(row)}>
      <form class="tools" onSubmit={choose}>
        {Object.entries(filters).map(([name, title]) => (
          <label key={name}>
            {title}
            <input name={name} />
          </label>
        ))}
        <button type="submit" class="button">
          Show
        </button>
      </form>
    </SiteList>
  );
}
