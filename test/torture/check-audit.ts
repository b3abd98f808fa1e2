/** The audit: a row for each change of a request or a token that is there, and for no other. */
import { type Facts, nameDeed } from './facts.js';
import type { Report } from './violations.js';

/** What may change nothing, such as to cancel again, and has no row then although it is answered. */
const IDLE = /^(cancelRequest|releaseFiles) /;

export function checkAudit({ deeds, requests, outside: { asked } }: Facts, report: Report): void {
  const rowsOf = new Map(deeds.map(({ operation, id, rows }) => [nameDeed(operation, id), rows]));
  for (const { id, state } of requests) {
    if (state === 'CANCELLED' && !rowsOf.has(nameDeed('cancelRequest', id))) {
      report('audit-missing', `request ${id} is CANCELLED, and nobody has done it`);
    }
    const rows = rowsOf.get(nameDeed('createRequest', id)) ?? 0;
    if (rows === 0) report('audit-missing', `request ${id} is there, and nobody has made it`);
    if (rows > 1) report('audit-twice', `request ${id} was made ${rows} times`);
  }
  // an answer that was lost says nothing: such a change is done, or not
  for (const [name, { times, confirmed }] of asked) {
    const rows = rowsOf.get(name) ?? 0;
    if (rows < confirmed && !IDLE.test(name))
      report('audit-missing', `${name} was confirmed ${confirmed} times, and has ${rows} rows`);
    if (rows > times) report('audit-twice', `${name} was asked for ${times} times, and has ${rows} rows`);
  }
}
