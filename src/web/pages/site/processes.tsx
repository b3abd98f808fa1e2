/** Shows the gateways and engines, and whether each of them is alive. */

import { ProcessesDocument, type ProcessesQuery } from '../../../generated/operations.js';
import { Badge } from '../../parts/badge';
import { CircleCheck, TriangleAlert } from '../../parts/icons';
import { Moment } from '../../parts/moment';
import { Problem } from '../../parts/problem';
import type { Column } from '../../parts/table';
import { Title } from '../../parts/title';
import { useSort } from './filters';
import { useLiveQuery } from './live';
import { SiteTable } from './site-table';

export type Process = NonNullable<ProcessesQuery['processes']>[number];

export const processKey = ({ kind, host, pid, startedAt }: Process): string => `${kind} ${host} ${pid} ${startedAt}`;

export const nameOfProcess = ({ kind, host, pid }: Process): string =>
  `${kind === 'ENGINE' ? 'Engine' : 'Gateway'} on ${host} (${pid})`;

export function Life({ isAlive }: { isAlive: boolean }) {
  return (
    <Badge tone={isAlive ? 'good' : 'bad'} icon={isAlive ? CircleCheck : TriangleAlert}>
      {isAlive ? 'Alive' : 'Silent'}
    </Badge>
  );
}

const columns: Column<Process>[] = [
  { title: 'Process', order: 'name', cell: nameOfProcess },
  { title: 'State', order: 'state', cell: ({ isAlive }) => <Life isAlive={isAlive} /> },
  { title: 'Version', order: 'version', cell: ({ version }) => version },
  { title: 'Started', order: 'started', cell: ({ startedAt }) => <Moment at={startedAt} isFull side="past" /> },
  { title: 'Last seen', order: 'seen', cell: ({ seenAt }) => <Moment at={seenAt} side="past" /> },
  { title: 'Lag', order: 'lag', isNumber: true, cell: ({ lagSeconds }) => `${lagSeconds.toFixed(1)} s` },
];

const orders = {
  name: nameOfProcess,
  state: ({ isAlive }: Process) => Number(isAlive),
  version: ({ version }: Process) => version,
  started: ({ startedAt }: Process) => startedAt,
  seen: ({ seenAt }: Process) => seenAt,
  lag: ({ lagSeconds }: Process) => lagSeconds,
};

export function ProcessesPage() {
  const { data, error, again } = useLiveQuery(ProcessesDocument, {}, 'PROCESSES');
  const { sorted, ...sort } = useSort<Process>(orders);
  return (
    <>
      <Title text="Gateways and engines" />
      {error && <Problem error={error} again={again} />}
      {data?.processes && (
        <SiteTable
          label="Gateways and engines"
          columns={columns}
          rows={sorted(data.processes)}
          keyOf={processKey}
          {...sort}
        />
      )}
    </>
  );
}
