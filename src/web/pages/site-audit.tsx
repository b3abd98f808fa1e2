/** Who asked for which change, and what came of it. */
import { useState } from 'preact/hooks';
import { SiteAuditDocument, type SiteAuditQuery } from '../../generated/web-operations';
import { useSiteLook } from '../live-site';
import { Moment } from '../parts/moment';
import { usePlaces } from '../parts/pages';
import type { Column } from '../parts/table';
import { PAGE, SiteList } from './site-list';

type Row = SiteAuditQuery['audit']['edges'][number]['node'];

const columns: Column<Row>[] = [
  { title: 'When', cell: ({ at }) => <Moment at={at} isFull side="past" /> },
  {
    title: 'Who',
    cell: ({ who, way, address }) => (
      <>
        <bdi>{who || 'nobody known'}</bdi> ({way}
        {address ? `, ${address}` : ''})
      </>
    ),
  },
  { title: 'Asked for', cell: ({ operation }) => operation },
  {
    title: 'Of',
    cell: ({ objectKind, object }) => (
      <>
        {objectKind.toLowerCase()} <bdi>{object}</bdi>
      </>
    ),
  },
  { title: 'Result', cell: ({ result, count }) => (count > 1 ? `${result}, ${count} times` : result) },
];

const filters = { who: 'Who', operation: 'Asked for', object: 'Of' } as const;
type Chosen = Partial<Record<keyof typeof filters, string>>;

export function AuditPage() {
  const places = usePlaces();
  const [chosen, setChosen] = useState<Chosen>({});
  const look = useSiteLook(SiteAuditDocument, { first: PAGE, after: places.after, ...chosen }, 'AUDIT');
  const choose = (event: Event) => {
    event.preventDefault();
    const given = new FormData(event.currentTarget as HTMLFormElement);
    places.restart();
    const named = Object.keys(filters).flatMap((name) => (given.get(name) ? [[name, String(given.get(name))]] : []));
    setChosen(Object.fromEntries(named));
  };
  return (
    <SiteList
      title="Audit"
      {...{ look, places, columns }}
      list={({ audit }) => audit}
      keyOf={(row) => JSON.stringify(row)}
    >
      <form class="tools" onSubmit={choose}>
        {Object.entries(filters).map(([name, title]) => (
          <label key={name}>
            {title}
            <input name={name} />
          </label>
        ))}
        <button type="submit">Show</button>
      </form>
    </SiteList>
  );
}
