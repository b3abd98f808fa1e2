/** What clients of the WLCG Tape REST API are told of what they have staged. */
import type { Context } from '../../src/context.js';
import { readBulk } from '../../src/operations/bulks/read.js';

export interface BulkPoll {
  id: string;
  isOver: boolean;
  /** By the paths that the client gave. */
  states: Readonly<Record<string, string>>;
}

/** Of all that there are. */
export async function pollBulks(ctx: Context): Promise<BulkPoll[]> {
  const { rows } = await ctx.db.pool.query<{ id: string }>('SELECT id FROM bulk ORDER BY id');
  const polls: BulkPoll[] = [];
  for (const { id } of rows) {
    await readBulk(ctx, id, async ({ endedAt }, pages) => {
      const states: Record<string, string> = {};
      for await (const page of pages) for (const { given, state } of page) states[given] = state;
      polls.push({ id, isOver: endedAt !== null, states });
    });
  }
  return polls;
}
