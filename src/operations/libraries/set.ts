/** Libraries are changed while everything runs. */
import type { Context } from '../../context.js';
import { locking } from '../../database/locks.js';
import { sql } from '../../database/sql.js';
import { type Transaction, transaction } from '../../database/transaction.js';
import { InvalidInputError, NotFoundError, quote } from '../../errors.js';
import { audited, type Note } from '../audit/audited.js';
import { pathOnTape } from '../conditions.js';
import { checkText } from '../input.js';
import { allow } from '../policy.js';
import { endTrials } from '../suspensions.js';
import { checkDepth, checkDrives, checkSettings } from './checks.js';
import { type Library, libraryColumns } from './libraries.js';

/** What is not given stays as it is. */
export interface SetLibraryInput {
  name: string;
  /** Must be what it is. */
  kind?: string | null | undefined;
  /** Those that are to be others; one that is null or empty is taken away. */
  settings?: object | null | undefined;
  drives?: number | null | undefined;
  /** Only of one that stages; null: as the engine has it. */
  depthFiles?: number | null | undefined;
  depthBytes?: bigint | null | undefined;
}

/**
 * Changes a library, as far as something is given; engines go on with it as it is then, without a restart. What they read from it just now they may give
 * up, and read again.
 * @throws NotFoundError; InvalidInputError, also for the first one, and for another kind
 */
export async function setLibrary(ctx: Context, input: SetLibraryInput): Promise<Library> {
  const { name, kind, settings, drives, depthFiles, depthBytes } = input;
  // the names of settings only: what was given for one may be a secret that is refused
  const given = { kind, settings: settings && Object.keys(settings), drives, depthFiles, depthBytes };
  const deed = { operation: 'setLibrary', kind: 'BACKEND', object: name, given } as const;
  const after = await audited(ctx, deed, (note) => set(ctx, input, note));
  // by itself: where this process dies before, it is tried when its pause is over
  if (settings) await endTrials(ctx, after);
  return after;
}

async function set(ctx: Context, input: SetLibraryInput, note: Note): Promise<Library> {
  allow(ctx, 'setLibrary');
  const name = checkText('name', input.name);
  return await transaction(ctx.db.pool, 'setLibrary', async (tx) => {
    const before = await lockOne(ctx, tx, name);
    const { id } = before;
    const { kind, settings, drives, depth } = change(ctx, before, input);
    await refuseNameless(ctx, tx, { before, settings });
    const after = { ...before, settings, drives, depthFiles: depth.files, depthBytes: depth.bytes };
    await tx.query(
      sql`UPDATE library SET settings = ${JSON.stringify(settings)}::jsonb, drives = ${drives}::int,
            depth_files = ${depth.files}::int, depth_bytes = ${depth.bytes}::bigint WHERE id = ${id}`,
    );
    // those that are too many go when no engine has them any more: removeSurplusDrives
    await tx.query(
      sql`INSERT INTO drive (name, library_id) SELECT ${name} || '-' || n, ${id}::int FROM generate_series(1, ${drives}::int) AS n
          ON CONFLICT (name) DO NOTHING`,
    );
    if (waitOf(ctx, { kind, settings }) !== waitOf(ctx, before)) {
      // what files have taken in another tier says nothing of this one
      await tx.query(sql`UPDATE stager SET waits = '{}' WHERE library_id = ${id}`);
    }
    await tx.query(note());
    await tx.query(sql`SELECT pg_notify('tapegate', 'library')`);
    return after;
  });
}

/** @throws NotFoundError; InvalidInputError for the first one */
async function lockOne(ctx: Context, tx: Transaction, name: string): Promise<Library> {
  if (name === ctx.config.tapeBackend) {
    const problem = `must not be ${quote(name)}: it is the first library, of which TAPEGATE_TAPE_BACKEND and DRIVES tell what it is`;
    throw new InvalidInputError('name', problem);
  }
  const [library] = await tx.query<Library>(
    sql`SELECT ${libraryColumns} FROM library b WHERE b.name = ${name} ${locking.libraryAlone}`,
  );
  if (library) return library;
  throw new NotFoundError(`there is no library ${quote(name)}`);
}

/** @throws InvalidInputError */
function change(ctx: Context, before: Library, input: SetLibraryInput) {
  const { kind } = before;
  if ((input.kind ?? kind) !== kind) {
    const problem = `must stay ${quote(kind)}, not become ${quote(input.kind ?? '')}: what is on its volumes could not be read; add another library, and import its files with places there`;
    throw new InvalidInputError('kind', problem);
  }
  const settings = mergeSettings(before.settings, input.settings ?? {});
  const contract = checkSettings(ctx, { kind, settings });
  const { depthFiles = before.depthFiles, depthBytes = before.depthBytes } = input;
  return {
    kind,
    settings,
    drives: checkDrives(input.drives ?? before.drives),
    depth: checkDepth(contract, { depthFiles, depthBytes }),
  };
}

/**
 * What would be asked for in vain, and so fail for good, is noticed before.
 * @throws InvalidInputError where a file would have no name at the library that has one now
 */
async function refuseNameless(
  ctx: Context,
  tx: Transaction,
  { before, settings }: { before: Library; settings: object },
): Promise<void> {
  const { prefixes: were = [''] } = ctx.stagingTermsOf(before);
  const { prefixes = [''] } = ctx.stagingTermsOf({ ...before, settings });
  if (were.every((each) => prefixes.some((prefix) => each.startsWith(prefix)))) return;
  const beginsWithOne = (of: readonly string[]) =>
    sql`EXISTS (SELECT FROM unnest(${of}::text[]) AS p (prefix) WHERE starts_with(${pathOnTape}, p.prefix))`;
  const [lost] = await tx.query<{ path: string }>(
    sql`SELECT ${pathOnTape} AS path FROM tape_file f WHERE f.volume_id IN (SELECT v.id FROM volume v WHERE v.library_id = ${before.id})
          AND ${beginsWithOne(were)} AND NOT ${beginsWithOne(prefixes)} LIMIT 1`,
  );
  if (!lost) return;
  const known = prefixes.map((each) => quote(each)).join(', ');
  const problem = `must have a name for each file of the library, and ${quote(lost.path)} is below none of ${known}`;
  throw new InvalidInputError('settings', problem);
}

function mergeSettings(before: object, given: object): object {
  const settings = new Map(Object.entries(before));
  for (const [name, value] of Object.entries(given)) {
    if (value === null || value === '') settings.delete(name);
    else settings.set(name, value);
  }
  return Object.fromEntries(settings);
}

function waitOf(ctx: Context, library: { kind: string; settings: unknown }): string {
  return JSON.stringify(ctx.stagingTermsOf(library).waitSeconds ?? null);
}

/** Drives beyond what their libraries have are no more, once no engine holds them and nothing is read with them. */
export async function removeSurplusDrives(ctx: Context): Promise<void> {
  await ctx.db.pool.query(
    sql`WITH surplus AS (
          SELECT d.id FROM drive d JOIN library b ON b.id = d.library_id
          WHERE substring(d.name FROM '[0-9]+$')::int > b.drives AND d.engine_id IS NULL AND d.lease_until IS NULL
            AND NOT EXISTS (SELECT FROM recall c WHERE c.drive_id = d.id)
          ORDER BY d.id ${locking.freeDrive} ${locking.freeLibraryShared}
        ), gone AS (
          DELETE FROM drive x USING surplus WHERE x.id = surplus.id RETURNING x.name
        )
        DELETE FROM suspension WHERE kind = 'DRIVE' AND name IN (SELECT name FROM gone)`,
  );
}
