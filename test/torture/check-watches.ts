/** What people were told who watched: each event once, in order, however often the gateway went away. */
import { groupBy } from './fact-index.js';
import type { Facts } from './facts.js';
import type { Report } from './violations.js';
import type { Watch } from './watchers.js';

export function checkWatches(facts: Facts, report: Report): void {
  const progress = groupBy(facts.progressEvents, (event) => event.requestId);
  for (const watch of facts.outside.watches) {
    const events = watch.requestId === undefined ? facts.stageEvents : (progress.get(watch.requestId) ?? []);
    checkWatch(
      watch,
      events.map((event) => event.id),
      report,
    );
  }
}

/** @param ids of the events that there are, in order */
function checkWatch(watch: Watch, ids: readonly bigint[], report: Report): void {
  const name = watch.requestId === undefined ? 'who watched all files' : `who watched request ${watch.requestId}`;
  if (watch.isCut) report('watch-cut', `${name} was told that it was over, and it was not`);
  const told = new Set(watch.told);
  const last = watch.told.at(-1) ?? 0n;
  // a request may have been revived since it had finished
  const missed = ids.find((id) => !told.has(id) && !(watch.isOver && id > last));
  if (missed !== undefined) report('watch-missed', `${name} was not told of event ${missed}`);
  const known = new Set(ids);
  const unknown = watch.told.find((id) => !known.has(id));
  if (unknown !== undefined) report('watch-unknown', `${name} was told of event ${unknown}, which there is not`);
  for (const [index, id] of watch.told.entries()) {
    const before = watch.told[index - 1];
    if (before !== undefined && id <= before) report('watch-order', `${name} was told of event ${id} after ${before}`);
  }
}
