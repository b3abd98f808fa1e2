/** The database for one command. */
import type { Config } from '../config.js';
import type { Context } from '../context.js';
import { openRuntime } from '../runtime.js';

/** Opens the database, brings it to the current schema, and closes it when the work is done. */
export async function withContext<T>(
  config: Config,
  work: (ctx: Context, migrated: string[]) => Promise<T>,
): Promise<T> {
  const runtime = await openRuntime(config);
  try {
    return await work(runtime.ctx, runtime.migrated);
  } finally {
    await runtime.close();
  }
}
