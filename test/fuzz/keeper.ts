/** What an operator does during a fuzz: puts back into service what was taken out, and bounds how many requests live. */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Context } from '../../src/context.js';
import { cancelRequest } from '../../src/operations/requests/ends.js';
import { resumeAll } from '../torture/operators.js';
import type { Known } from './known.js';

const EVERY_MS = 1000;
/** Lists have so many, and each import looks at the patterns of so many. */
const LIVE = 150;
/** Of those that GraphQL has made, too, inputs name the last. */
const NAMED = 60;

/** Until the signal: a server that has gone ends it as well. */
export async function keepBounded(ctx: Context, known: Known, signal: AbortSignal): Promise<void> {
  while (!signal.aborted) {
    await resumeAll(ctx);
    const { rows } = await ctx.db.pool.query<{ id: number }>(
      `SELECT id FROM request WHERE state NOT IN ('EXPIRED', 'CANCELLED') ORDER BY id DESC`,
    );
    for (const { id } of rows.slice(0, NAMED)) known.name(id);
    for (const { id } of rows.slice(LIVE)) await cancelRequest(ctx, id);
    await sleep(EVERY_MS, undefined, { signal }).catch(() => {}); // woken by the end
  }
}
