/**
 * Databases from before 70 migrations were squashed into `init`. One that has all of them already has the schema of
 * `init`: only its records change. One with fewer is refused, because this version no longer has the missing ones.
 * `test/process/migrate.test.ts` compares the two schemas. It fails if a schema change edits `init`: then remove this
 * file, or make the same change here.
 */
import { createHash, randomUUID } from 'node:crypto';
import type pg from 'pg';

/** The last commit that contains them. */
const COMMIT = 'f3d3962';
const COUNT = 70;
const FIRST = {
  name: '20261120000000_init',
  checksum: '47abea242cc965d699928d7850b0f2b540773e773e2b818435d1c869ced038c5',
};
const LAST = '20261203120000_link_folders';
/** SHA-256 of the lines `<name> <checksum>`, in order. */
const DIGEST = 'bc127c297d69627ab702d6b81bde26cd483e16b19c5e7f346b0240ef8bbb9dc0';

/**
 * Replaces the records of the 70 migrations by that of `init`. Does nothing to any other database.
 * @param client holds the migration lock
 * @param known checksums by name
 * @throws Error if the database has only a part of them, or others
 */
export async function replaceSquashed(
  client: pg.Client,
  known: ReadonlyMap<string, string>,
  init: { name: string; checksum: string },
): Promise<void> {
  if (known.get(FIRST.name) !== FIRST.checksum) return;
  const squashed = [...known].filter(([name]) => name <= LAST).sort(([a], [b]) => (a < b ? -1 : 1));
  const lines = squashed.map(([name, checksum]) => `${name} ${checksum}`).join('\n');
  if (createHash('sha256').update(lines).digest('hex') !== DIGEST) {
    const found = squashed.length === COUNT ? `other versions of the ${COUNT}` : `${squashed.length} of the ${COUNT}`;
    throw new Error(
      `this database has ${found} migrations that ${init.name} replaces: run "tapegate migrate" of commit ${COMMIT} on it first`,
    );
  }
  await recordMigration(client, init, async () => {
    await client.query('DELETE FROM "_prisma_migrations" WHERE "migration_name" COLLATE "C" <= $1', [LAST]);
    // they name versions by migrations that no longer exist, and would reject this version
    await client.query('DELETE FROM oldest_program WHERE migration COLLATE "C" <= $1', [LAST]);
  });
}

/** Runs `work` and records a migration, in one transaction. */
export async function recordMigration(
  client: pg.Client,
  { name, checksum }: { name: string; checksum: string },
  work: () => Promise<unknown>,
): Promise<void> {
  await client.query('BEGIN');
  try {
    await work();
    await client.query(
      `INSERT INTO "_prisma_migrations" ("id", "checksum", "migration_name", "finished_at", "applied_steps_count")
       VALUES ($1, $2, $3, clock_timestamp(), 1)`,
      [randomUUID(), checksum, name],
    );
    await client.query('COMMIT');
  } catch (error) {
    await client.query('ROLLBACK').catch(() => {}); // the connection itself may have failed
    throw error;
  }
}
