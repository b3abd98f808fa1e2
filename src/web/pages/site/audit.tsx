/** Shows the audit log: each change, who made it, and its result. The address has the filters. */

import { AuditDocument, type AuditResult, type AuditRowFragment } from '../../../generated/operations.js';
import { Badge } from '../../parts/badge';
import { Button } from '../../parts/button';
import { ScrollText } from '../../parts/icons';
import { Moment } from '../../parts/moment';
import { usePaging } from '../../parts/paging';
import type { Column } from '../../parts/table';
import { useFilters } from './filters';
import { PAGE, SiteList } from './list';
import { useLiveQuery } from './live';

type Row = AuditRowFragment;

const results: Readonly<Record<AuditResult, string>> = { BEGUN: 'Started', DONE: 'Done', FAILED: 'Failed' };

export const auditColumns: Column<Row>[] = [
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
        {object !== '' && objectKind.toLowerCase()} <bdi>{object}</bdi>
      </>
    ),
  },
  {
    title: 'Result',
    cell: ({ result, errorCode, count }) => (
      <Badge tone={errorCode === null ? 'quiet' : 'bad'}>
        {errorCode ?? results[result]}
        {count > 1 ? `, ${count} times` : ''}
      </Badge>
    ),
  },
];

export const auditKey = (row: Row): string => JSON.stringify(row);

const filters = {
  caller: 'Caller',
  operation: 'Operation',
  object: 'Object',
  since: 'From',
  until: 'Before',
} as const;
type Filter = keyof typeof filters;
const names = Object.keys(filters) as Filter[];

export function AuditPage() {
  const paging = usePaging();
  const { values, choose } = useFilters(...names);
  const look = useLiveQuery(AuditDocument, { first: PAGE, after: paging.after, ...values }, 'AUDIT');
  const show = (event: Event) => {
    event.preventDefault();
    const given = new FormData(event.currentTarget as HTMLFormElement);
    choose(Object.fromEntries(names.map((name) => [name, String(given.get(name) ?? '') || undefined])));
  };
  const isFiltered = names.some((name) => values[name] !== undefined);
  return (
    <SiteList
      title="Audit"
      {...{ look, paging }}
      columns={auditColumns}
      keyOf={auditKey}
      none={['No entries match', ScrollText]}
    >
      {/* a new key shows the filters of the address after Back */}
      <form class="tools" onSubmit={show} key={JSON.stringify(values)}>
        {names.map((name) => (
          <label key={name}>
            {filters[name]}
            <input
              name={name}
              defaultValue={values[name] ?? ''}
              {...(name === 'since' || name === 'until' ? { type: 'date' as const } : {})}
            />
          </label>
        ))}
        <Button type="submit">Show</Button>
        {isFiltered && (
          <Button kind="plain" onClick={() => choose(Object.fromEntries(names.map((name) => [name, undefined])))}>
            Clear
          </Button>
        )}
      </form>
    </SiteList>
  );
}
