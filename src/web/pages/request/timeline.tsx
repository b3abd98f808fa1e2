/** Shows the steps of a request, from its creation to its expiry, with their times. */

import { useNow } from '../../now';
import { CalendarClock, Check, Circle, LoaderCircle, X } from '../../parts/icons';
import { Moment } from '../../parts/moment';
import { isOver } from '../../parts/state';
import { formatClock } from './clock';
import { countWaiting, type ShownRequest } from './shown-request';

interface Step {
  name: string;
  /** Time of the step, if it is known or expected. */
  at: string | null;
  place: 'done' | 'current' | 'future' | 'skipped';
}

const icons = { done: Check, current: LoaderCircle, future: Circle, skipped: X };
const inWords = { done: 'done', current: 'now', future: 'later', skipped: 'did not happen' };

const EXPIRES = 'Expires';

/** Returns the steps of a request. The first step that has not happened is the current one, except the expiry. */
function stepsOf(request: ShownRequest): Step[] {
  const { state, createdAt, recallsStartedAt, firstFileOnDiskAt, finishedAt, retention, filesOnDisk } = request;
  const hasEnded = isOver(state);
  const isWhole = finishedAt !== null && countWaiting(request) === 0;
  // files that were on disk already need no recall
  const hasFirst = firstFileOnDiskAt !== null || filesOnDisk > 0;
  const happened: [name: string, at: string | null, hasHappened: boolean][] = [
    ['Requested', createdAt, true],
    [
      hasFirst && recallsStartedAt === null ? 'No recall needed' : 'First recall',
      recallsStartedAt,
      recallsStartedAt !== null || hasFirst,
    ],
    ['First file', firstFileOnDiskAt, hasFirst],
    ['Last file', isWhole ? finishedAt : (request.end?.planned ?? request.waiting?.end?.planned ?? null), isWhole],
    [state === 'CANCELLED' ? 'Cancelled' : hasEnded ? 'Expired' : EXPIRES, retention, hasEnded],
  ];
  const current = happened.findIndex(([, , hasHappened]) => !hasHappened);
  return happened.map(([name, at, hasHappened], index) => ({
    name,
    at,
    place: hasHappened ? 'done' : hasEnded ? 'skipped' : index === current && name !== EXPIRES ? 'current' : 'future',
  }));
}

export function Timeline({ request }: { request: ShownRequest }) {
  const now = useNow();
  return (
    <ol class="timeline" aria-label="Timeline">
      {stepsOf(request).map(({ name, at, place }) => {
        const Icon = name === EXPIRES ? CalendarClock : icons[place];
        return (
          <li key={name} class={place} aria-current={place === 'current' ? 'step' : undefined}>
            <span class="dot">
              <Icon class="icon" size={12} aria-hidden="true" />
            </span>
            <span class="step-name">
              {name}
              <span class="unseen"> ({inWords[place]})</span>
            </span>
            {at !== null && place !== 'skipped' && (
              <span class="step-time">
                {place === 'done' || name === EXPIRES ? '' : 'about '}
                {formatClock(at, now)}
                <br />
                <Moment at={at} side={place === 'done' ? 'past' : 'ahead'} />
              </span>
            )}
          </li>
        );
      })}
    </ol>
  );
}
