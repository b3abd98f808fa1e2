/** Tells what happened to a request, from the recorded changes of its state and counts. */

import { RequestEventsDocument, type RequestEventsQuery } from '../../../generated/operations.js';
import { count } from '../../format';
import {
  CircleCheck,
  CircleX,
  Clock,
  Flag,
  FolderDown,
  FolderPlus,
  HardDrive,
  type IconType,
  RotateCw,
  Undo2,
} from '../../parts/icons';
import { Moment } from '../../parts/moment';
import { Problem } from '../../parts/problem';
import { Skeleton } from '../../parts/skeleton';
import { requestStates } from '../../parts/state';
import type { ShownRequest } from './shown-request';
import { useTabQuery } from './tab-query';

/** Number of recorded changes to read. */
const MOST = 500;

type RequestEvent = NonNullable<RequestEventsQuery['request']>['events']['edges'][number]['node'];

interface Entry {
  at: string;
  kind: 'created' | 'state' | 'present' | 'restored' | 'failed' | 'retried' | 'added' | 'released' | 'finished';
  /** Number of files that the change concerns. */
  files: number;
  text?: string;
}

const icons: Record<Entry['kind'], IconType> = {
  created: Flag,
  state: Clock,
  present: HardDrive,
  restored: FolderDown,
  failed: CircleX,
  retried: RotateCw,
  added: FolderPlus,
  released: Undo2,
  finished: CircleCheck,
};

const words: Partial<Record<Entry['kind'], (files: string) => string>> = {
  present: (files) => `${files} already on disk`,
  restored: (files) => `${files} arrived on disk`,
  failed: (files) => `${files} failed`,
  retried: (files) => `Retry of ${files}`,
  added: (files) => `${files} added to the request`,
  released: (files) => `${files} released`,
};

interface ActivityProps {
  request: ShownRequest;
  version: number;
}

export function Activity({ request, version }: ActivityProps) {
  const { data, error, again } = useTabQuery(RequestEventsDocument, { id: request.requestId, first: MOST }, version);
  if (error && !data) return <Problem error={error} again={again} />;
  if (!data) return <Skeleton />;
  const page = data.request?.events;
  const events = (page?.edges ?? []).map(({ node }) => node).reverse();
  const entries = joinAlike(entriesOf(events)).reverse();
  const isWhole = page?.pageInfo.hasNextPage === false;
  return (
    <>
      <ol class="request-activity" aria-label="Activity, newest first">
        {entries.map((entry, index) => (
          <Line key={index} entry={entry} />
        ))}
        <Line entry={{ at: request.createdAt, kind: 'created', files: 0, text: 'Requested' }} />
      </ol>
      {!isWhole && <p class="hint">Older changes are not shown.</p>}
    </>
  );
}

function Line({ entry: { at, kind, files, text } }: { entry: Entry }) {
  const Icon = icons[kind];
  return (
    <li>
      <Icon class="icon" size={16} aria-hidden="true" />
      <span>{text ?? words[kind]?.(count(files, 'file'))}</span>
      <Moment at={at} isFull side="past" />
    </li>
  );
}

/** Returns what changed between each two events. @param events oldest first */
function entriesOf(events: readonly RequestEvent[]): Entry[] {
  return events.flatMap((event, index): Entry[] => {
    const before = events[index - 1];
    const { at } = event;
    if (!before) return event.filesOnDisk > 0 ? [{ at, kind: 'present', files: event.filesOnDisk }] : [];
    const restored = event.filesOnDisk - before.filesOnDisk;
    const failed = event.filesFailed - before.filesFailed;
    const total = event.filesTotal - before.filesTotal;
    const hasState = event.state !== before.state;
    const kindOfState = event.state === 'COMPLETED' || event.state === 'PARTIAL' ? 'finished' : 'state';
    return [
      ...(total > 0 ? [{ at, kind: 'added', files: total } as const] : []),
      ...(total < 0 ? [{ at, kind: 'released', files: -total } as const] : []),
      ...(failed > 0 ? [{ at, kind: 'failed', files: failed } as const] : []),
      // files that have left the failed ones without leaving the request were retried
      ...(failed < 0 && total >= 0 ? [{ at, kind: 'retried', files: -failed } as const] : []),
      ...(restored > 0 ? [{ at, kind: 'restored', files: restored } as const] : []),
      ...(hasState ? [{ at, kind: kindOfState, files: 0, text: requestStates[event.state] } as const] : []),
    ];
  });
}

/** Joins consecutive entries of the same kind, such as the arrivals of single files, into one entry. */
function joinAlike(entries: readonly Entry[]): Entry[] {
  const joined: Entry[] = [];
  for (const entry of entries) {
    const last = joined.at(-1);
    if (last && last.kind === entry.kind && entry.text === undefined)
      joined[joined.length - 1] = { ...entry, files: last.files + entry.files };
    else joined.push(entry);
  }
  return joined;
}
