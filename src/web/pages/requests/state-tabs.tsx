/** Tabs that filter requests by state. Each tab is a link, and shows the current number of requests. */
import type { RequestListQuery, RequestState } from '../../../generated/operations.js';
import { formatNumber } from '../../format';

type Counts = NonNullable<RequestListQuery['counts']>;

const LIVE: readonly RequestState[] = ['QUEUED', 'RESTORING', 'COMPLETED', 'PARTIAL'];
const ENDED: readonly RequestState[] = ['EXPIRED', 'CANCELLED'];

/** The gateway counts ended requests only up to this number. */
const MAX_COUNTED = 10_000;

const tabs: readonly (readonly [state: string, title: string, states: readonly RequestState[]])[] = [
  ['', 'Live', LIVE],
  ['queued', 'Queued', ['QUEUED']],
  ['restoring', 'Restoring', ['RESTORING']],
  ['completed', 'Complete', ['COMPLETED']],
  ['partial', 'With failures', ['PARTIAL']],
  ['expired', 'Expired', ['EXPIRED']],
  ['cancelled', 'Cancelled', ['CANCELLED']],
  ['all', 'All', [...LIVE, ...ENDED]],
];

export function statesOf(state: string): RequestState[] {
  return [...(tabs.find(([name]) => name === state)?.[2] ?? LIVE)];
}

interface StateTabsProps {
  state: string;
  counts: Counts | undefined;
  linkTo(state: string): string;
}

export function StateTabs({ state, counts, linkTo }: StateTabsProps) {
  const current = tabs.find(([name]) => name === state) ?? tabs[0];
  return (
    <>
      <p role="status" class="unseen">
        {counts && current && describeCount(counts, current[2])}
      </p>
      <nav class="tabs" aria-label="States of requests">
        {tabs.map(([name, title, states]) => (
          <a key={name} href={linkTo(name)} aria-current={name === current?.[0] ? 'page' : undefined}>
            {title}
            {counts && (
              <>
                {' '}
                <span class="tally">{formatCount(counts, states)}</span>
              </>
            )}
          </a>
        ))}
      </nav>
    </>
  );
}

function describeCount(counts: Counts, states: readonly RequestState[]): string {
  const text = formatCount(counts, states);
  return `${text} ${text === '1' ? 'request' : 'requests'}`;
}

function formatCount(counts: Counts, states: readonly RequestState[]): string {
  const shown = counts.filter((each) => states.includes(each.state));
  const isCut = shown.some((each) => ENDED.includes(each.state) && each.count >= MAX_COUNTED);
  return `${formatNumber(shown.reduce((sum, each) => sum + each.count, 0))}${isCut ? '+' : ''}`;
}
