/** The database as a whole: emptied between tests, and looked at to see that nothing, or the same, was stored. */
import type { Context } from '../../src/context.js';

/** Only while no engine runs. Ids begin again at 1. */
export async function emptyTables(ctx: Context): Promise<void> {
  await ctx.db.pool.query(`TRUNCATE ${(await listTables(ctx)).join(', ')} RESTART IDENTITY CASCADE`);
}

/** Every row of every table, as JSON text: two dumps are equal when all tables are. */
export async function dumpTables(ctx: Context): Promise<Record<string, string[]>> {
  const dump: Record<string, string[]> = {};
  for (const table of await listTables(ctx)) {
    const { rows } = await ctx.db.pool.query<{ row: string }>(
      `SELECT row_to_json(t)::text AS row FROM "${table}" t ORDER BY 1`,
    );
    dump[table] = rows.map(({ row }) => row);
  }
  return dump;
}

async function listTables(ctx: Context): Promise<string[]> {
  const { rows } = await ctx.db.pool.query<{ name: string }>(
    `SELECT tablename AS name FROM pg_tables WHERE schemaname = 'public' AND tablename <> '_prisma_migrations' ORDER BY 1`,
  );
  return rows.map(({ name }) => name);
}
