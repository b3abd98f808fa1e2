/** Adds, changes and removes libraries while engines run. */

import { InUseError, InvalidInputError, NotFoundError, quote, SettingsError } from '../../core/errors.js';
import { plural } from '../../core/text/plural.js';
import { locking, lockLibraries } from '../../db/locks.js';
import { sql } from '../../db/sql.js';
import { type Transaction, transaction } from '../../db/transaction.js';
import type { LibraryContract } from '../../generated/prisma/enums.js';
import { audited } from '../audit/audited.js';
import { pathOnTape } from '../conditions.js';
import type { Context } from '../context.js';
import { endTrials } from '../health/suspensions.js';
import { checkBytes, checkText } from '../input.js';
import { FIRST_LIBRARY, type Library, libraryColumns } from './libraries.js';

const MOST_DRIVES = 256;
const MOST_DEPTH_FILES = 1_000_000;
const MOST_SETTINGS_BYTES = 64 * 1024;

/**
 * Settings of a library. If a field is undefined, an existing library keeps its current value for the field, and a new
 * library gets the default value.
 */
interface UpdateLibraryInput {
  name: string;
  kind?: string | null | undefined;
  /** Settings by name. A setting that is null or an empty text is removed. */
  settings?: object | null | undefined;
  drives?: number | null | undefined;
  /**
   * Maximum number of files (`depthFiles`) and of bytes (`depthBytes`) that a staging library stages at the same time.
   * If a field is null, engines use their default.
   */
  depthFiles?: number | null | undefined;
  depthBytes?: bigint | null | undefined;
}

interface AddLibraryInput extends UpdateLibraryInput {
  kind: string;
  settings: object;
}

const DRIVES = 2;

const NAME = /^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$/;

/**
 * Name that no library can have. Drives are named after their library, but the drives of the first library are named
 * `drive-1`, `drive-2`, …
 */
const RESERVED_NAME = 'drive';

/**
 * Adds a library. Does not test the connection to the library.
 * @throws InvalidInputError
 */
export async function addLibrary(ctx: Context, input: AddLibraryInput): Promise<Library> {
  const action = actionOf('addLibrary', input);
  return await audited(ctx, action, async (auditEntry) => {
    const name = checkName(input.name);
    const contract = checkSettings(ctx, input);
    const drives = checkCount('drives', input.drives ?? DRIVES, MOST_DRIVES);
    const depth = checkDepth(contract, input);
    return await transaction(ctx.db.pool, 'addLibrary', async (tx) => {
      const [library] = await tx.query<Library>(
        sql`INSERT INTO library AS b (name, kind, contract, settings, drives, depth_files, depth_bytes, added_at)
            VALUES (${name}, ${input.kind}, ${contract}::"LibraryContract", ${JSON.stringify(input.settings)}::jsonb, ${drives}::int,
              ${depth.files}::int, ${depth.bytes}::bigint, ${ctx.now()}::timestamp)
            ON CONFLICT (name) DO NOTHING
            RETURNING ${libraryColumns}`,
      );
      if (!library) throw new InvalidInputError('name', `must be unique: library ${quote(name)} already exists`);
      await tx.query(
        sql`INSERT INTO drive (name, library_id) SELECT ${name} || '-' || n, ${library.id} FROM generate_series(1, ${drives}::int) AS n`,
      );
      await tx.query(auditEntry({ given: { ...action.given, settings: input.settings } }));
      await tx.query(sql`SELECT pg_notify('tapegate', 'library')`);
      return library;
    });
  });
}

/**
 * Returns the action to record in the audit log if the change is refused. The action contains the names of the settings
 * without their values, because a user might have entered a secret in the wrong field.
 */
function actionOf(operation: 'addLibrary' | 'updateLibrary', input: UpdateLibraryInput) {
  const { name, kind, settings, drives, depthFiles, depthBytes } = input;
  const given = { kind, settings: settings && Object.keys(settings), drives, depthFiles, depthBytes };
  return { operation, kind: 'LIBRARY', object: name, given } as const;
}

function checkName(given: string): string {
  const name = checkText('name', given);
  if (!NAME.test(name)) {
    const problem = `must begin with a letter or a digit, and contain at most 63 letters, digits, ".", "_" and "-", not ${quote(name)}`;
    throw new InvalidInputError('name', problem);
  }
  if (name !== RESERVED_NAME) return name;
  throw new InvalidInputError('name', `must not be ${quote(name)}, which is reserved for the first library`);
}

/**
 * Changes a library. Engines use the new settings without a restart. Engines might repeat reads that were running
 * during the change.
 * @throws NotFoundError, InvalidInputError
 */
export async function updateLibrary(ctx: Context, input: UpdateLibraryInput): Promise<Library> {
  const action = actionOf('updateLibrary', input);
  const after = await audited(ctx, action, async (auditEntry) => {
    const name = checkText('name', input.name);
    return await transaction(ctx.db.pool, 'updateLibrary', async (tx) => {
      const before = await lockOne(tx, name);
      const { id } = before;
      const { kind, settings, drives, depth } = change(ctx, before, input);
      await refuseNameless(ctx, tx, { before, settings });
      const after = { ...before, settings, drives, depthFiles: depth.files, depthBytes: depth.bytes };
      await tx.query(
        sql`UPDATE library SET settings = ${JSON.stringify(settings)}::jsonb, drives = ${drives}::int,
              depth_files = ${depth.files}::int, depth_bytes = ${depth.bytes}::bigint WHERE id = ${id}`,
      );
      await tx.query(
        sql`INSERT INTO drive (name, library_id) SELECT ${name} || '-' || n, ${id}::int FROM generate_series(1, ${drives}::int) AS n
            ON CONFLICT (name) DO NOTHING`,
      );
      if (waitOf(ctx, { kind, settings }) !== waitOf(ctx, before)) {
        // delete the measured staging times, because they do not apply to the library's new storage tier
        await tx.query(sql`UPDATE stager SET waits = '{}' WHERE library_id = ${id}`);
      }
      await tx.query(auditEntry({ given: { ...action.given, settings: input.settings } }));
      await tx.query(sql`SELECT pg_notify('tapegate', 'library')`);
      return after;
    });
  });
  // make engines retry the library immediately; if the process dies before this call, engines retry the library after
  // the usual pause
  if (input.settings) await endTrials(ctx, after);
  return after;
}

async function lockOne(tx: Transaction, name: string): Promise<Library> {
  const [library] = await tx.query<Library>(
    sql`SELECT ${libraryColumns} FROM library b WHERE b.name = ${name} ${locking.libraryAlone}`,
  );
  if (!library) throw new NotFoundError(`there is no library ${quote(name)}`);
  if (library.id !== FIRST_LIBRARY) return library;
  const problem = `must not be ${quote(name)}: the setting DRIVES configures the first library`;
  throw new InvalidInputError('name', problem);
}

function change(ctx: Context, before: Library, input: UpdateLibraryInput) {
  const { kind } = before;
  if ((input.kind ?? kind) !== kind) {
    const problem = `must remain ${quote(kind)}, not ${quote(input.kind ?? '')}: the volumes of the library would become unreadable; add another library, and import the files with their positions in that library`;
    throw new InvalidInputError('kind', problem);
  }
  const settings = mergeSettings(before.settings, input.settings ?? {});
  const contract = checkSettings(ctx, { kind, settings });
  const { depthFiles = before.depthFiles, depthBytes = before.depthBytes } = input;
  return {
    kind,
    settings,
    drives: checkCount('drives', input.drives ?? before.drives, MOST_DRIVES),
    depth: checkDepth(contract, { depthFiles, depthBytes }),
  };
}

/**
 * Rejects prefixes that do not cover all files in the library. Recalls of files outside the prefixes would fail.
 * @throws InvalidInputError
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
  const problem = `must have a prefix for each file in the library, but ${quote(lost.path)} is not below ${known}`;
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

export interface RemovedLibrary {
  id: number;
  name: string;
  drives: number;
  volumes: number;
  /**
   * Number of staged files that a forced removal of the library did not release in the tape system; 0 if the removal
   * was not forced.
   */
  stagedFiles: number;
  stagedBytes: bigint;
  left: StagedFileLeft[];
}

export interface StagedFileLeft {
  path: string;
  demand: string | null;
  /** Time at which the tape system removes the staged file from the tape system's disk; null if unknown. */
  until: string | null;
}

const MOST_STALE = 1000;

/**
 * Removes a library that does not have files in the catalogue. Does not change anything in the tape system. With
 * `force`, removes the library even if staged files cannot be released.
 * @throws NotFoundError, InvalidInputError, InUseError
 */
export async function removeLibrary(
  ctx: Context,
  given: string,
  { force = false }: { force?: boolean | null | undefined } = {},
): Promise<RemovedLibrary> {
  const action = { operation: 'removeLibrary', kind: 'LIBRARY', object: given, given: force ? { force } : {} } as const;
  return await audited(ctx, action, async (auditEntry) => {
    const name = checkText('name', given);
    return await transaction(ctx.db.pool, 'removeLibrary', async (tx) => {
      const id = await lockLibrary(tx, name);
      // lock the library before the checks, so that the checks see all changes by transactions that held this lock
      // earlier
      await tx.query(sql`SELECT FROM volume v WHERE v.library_id = ${id} ORDER BY v.id ${locking.volume}`);
      await refuseUsed(tx, { id, name });
      const volumes = await tx.query(sql`DELETE FROM volume WHERE library_id = ${id} RETURNING id`);
      await tx.query(sql`SELECT FROM drive d WHERE d.library_id = ${id} ORDER BY d.id ${locking.drive}`);
      await refuseReading(tx, { id, name });
      const drives = await tx.query<{ name: string }>(sql`DELETE FROM drive WHERE library_id = ${id} RETURNING name`);
      await tx.query(
        sql`DELETE FROM suspension WHERE (kind = 'LIBRARY' AND name = ${name})
              OR (kind = 'DRIVE' AND name = ANY(${drives.map((drive) => drive.name)}::text[]))`,
      );
      const left = force ? await readLeftFiles(tx, id) : await refuseLeft(tx, { id, name });
      await tx.query(sql`DELETE FROM staging WHERE library_id = ${id}`);
      await tx.query(sql`DELETE FROM library WHERE id = ${id}`);
      await tx.query(auditEntry({ given: { ...action.given, ...describeLeft(left) } }));
      await tx.query(sql`SELECT pg_notify('tapegate', 'library')`);
      return { id, name, drives: drives.length, volumes: volumes.length, ...left };
    });
  });
}

async function lockLibrary(tx: Transaction, name: string): Promise<number> {
  const [id] = await lockLibraries(tx, sql`b.name = ${name}`);
  if (id === undefined) throw new NotFoundError(`there is no library ${quote(name)}`);
  if (id !== FIRST_LIBRARY) return id;
  throw new InvalidInputError('name', `must not be ${quote(name)}: the first library cannot be removed`);
}

async function refuseUsed(tx: Transaction, { id, name }: { id: number; name: string }): Promise<void> {
  const [use] = await tx.query<{ volumes: number; files: number; bytes: bigint; recalls: number }>(
    sql`SELECT count(DISTINCT v.id)::int AS volumes, count(f.id)::int AS files, coalesce(sum(f.size), 0) AS bytes,
          (SELECT count(*)::int FROM recall c JOIN volume w ON w.id = c.volume_id WHERE w.library_id = ${id}) AS recalls
        FROM volume v JOIN tape_file f ON f.volume_id = v.id OR f.copy_volume_id = v.id WHERE v.library_id = ${id}`,
  );
  if (!use || (use.files === 0 && use.recalls === 0)) return;
  throw new InUseError(
    `library ${quote(name)} contains ${plural(use.files, 'file')} (${plural(use.bytes, 'byte')} in total) on ${plural(use.volumes, 'volume')}, and has ${plural(use.recalls, 'recall')}: import its files with positions in another library first`,
  );
}

type Left = Pick<RemovedLibrary, 'stagedFiles' | 'stagedBytes' | 'left'>;

/**
 * Rejects the removal of a library that is still staging files. Ignores files in the state KEPT, because the tape
 * system removes these files without a release request.
 * @throws InUseError
 */
async function refuseLeft(tx: Transaction, { id, name }: { id: number; name: string }): Promise<Left> {
  const [open] = await tx.query<{ files: number }>(
    sql`SELECT count(*)::int AS files FROM staging s WHERE s.library_id = ${id} AND s.state <> 'KEPT'`,
  );
  if (!open?.files) return { stagedFiles: 0, stagedBytes: 0n, left: [] };
  throw new InUseError(
    `library ${quote(name)} still stages ${plural(open.files, 'file')} for Tapegate: try again when ${open.files === 1 ? 'it is' : 'they are'} released, or force the removal if the library no longer answers`,
  );
}

async function readLeftFiles(tx: Transaction, id: number): Promise<Left> {
  await tx.query(sql`SELECT FROM staging g WHERE g.library_id = ${id} ORDER BY g.file_id ${locking.staging}`);
  const [sum] = await tx.query<{ files: number; bytes: bigint }>(
    sql`SELECT count(*)::int AS files, coalesce(sum(s.size), 0) AS bytes FROM staging s WHERE s.library_id = ${id}`,
  );
  const left = await tx.query<StagedFileLeft>(
    sql`SELECT f.path, s.remote_id AS demand, s.ready_until AS until FROM staging s JOIN tape_file f ON f.id = s.file_id
        WHERE s.library_id = ${id} ORDER BY s.remote_id, f.path LIMIT ${MOST_STALE}`,
  );
  return { stagedFiles: sum?.files ?? 0, stagedBytes: sum?.bytes ?? 0n, left };
}

function describeLeft({ stagedFiles, stagedBytes, left }: Left): object {
  if (stagedFiles === 0) return {};
  return { stagedFiles, stagedBytes: String(stagedBytes), demands: [...new Set(left.map(({ demand }) => demand))] };
}

async function refuseReading(tx: Transaction, { id, name }: { id: number; name: string }): Promise<void> {
  const rows = await tx.query<{ drive: string; recalls: number }>(
    sql`SELECT d.name AS drive, count(*)::int AS recalls FROM drive d JOIN recall c ON c.drive_id = d.id
        WHERE d.library_id = ${id} AND c.state = 'RUNNING' GROUP BY d.id ORDER BY d.id`,
  );
  if (!rows[0]) return;
  const { drive, recalls } = rows[0];
  throw new InUseError(
    `library ${quote(name)} is in use: ${plural(recalls, 'recall runs', 'recalls run')} on ${drive}; try again when ${recalls === 1 ? 'it has' : 'they have'} ended`,
  );
}

function checkSettings(ctx: Context, { kind, settings }: { kind: string; settings: object }): LibraryContract {
  const size = Buffer.byteLength(JSON.stringify(settings));
  if (size > MOST_SETTINGS_BYTES) {
    throw new InvalidInputError('settings', `must have at most ${MOST_SETTINGS_BYTES} bytes as JSON, not ${size}`);
  }
  try {
    const { contract } = ctx.checkLibrary(kind, settings);
    return contract === 'drive' ? 'DRIVE' : 'STAGING';
  } catch (error) {
    if (!(error instanceof SettingsError)) throw error;
    const { setting, problem } = error;
    throw new InvalidInputError(['kind', 'settings'].includes(setting) ? setting : `settings.${setting}`, problem);
  }
}

function checkDepth(
  contract: LibraryContract,
  { depthFiles: files = null, depthBytes: bytes = null }: Pick<UpdateLibraryInput, 'depthFiles' | 'depthBytes'>,
): { files: number | null; bytes: bigint | null } {
  for (const [field, value] of Object.entries({ depthFiles: files, depthBytes: bytes })) {
    if (value === null || contract === 'STAGING') continue;
    const problem = `must not be set to ${value}: the setting applies only to staging libraries, and this library has drives`;
    throw new InvalidInputError(field, problem);
  }
  if (files !== null) checkCount('depthFiles', files, MOST_DEPTH_FILES);
  if (bytes !== null && checkBytes('depthBytes', bytes) === 0n) {
    throw new InvalidInputError('depthBytes', 'must be at least 1 byte, not 0');
  }
  return { files, bytes };
}

function checkCount(field: string, value: number, most: number): number {
  if (Number.isInteger(value) && value >= 1 && value <= most) return value;
  throw new InvalidInputError(field, `must be a whole number from 1 to ${most}, not ${value}`);
}
