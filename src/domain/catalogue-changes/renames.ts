/**
 * Renames files in the catalogue. A renamed file stays in its requests. A renamed file is also added to requests that
 * list its new path as unresolved, or have a pattern that matches the new path. A copy that is on disk or being
 * restored keeps its path (`disk_path`) until no request contains the file.
 */

import { InUseError, InvalidInputError, quote } from '../../core/errors.js';
import { plural } from '../../core/text/plural.js';
import { lockQuotas, lockRequests } from '../../db/locks.js';
import { type Sql, sql } from '../../db/sql.js';
import { type Transaction, transaction } from '../../db/transaction.js';
import { recordProgress } from '../../events/event-writes.js';
import { audited } from '../audit/audited.js';
import {
  type ChosenFiles,
  chosenFiles,
  countChosen,
  inSteps,
  lockLeaving,
  whyNone,
} from '../catalogue/chosen-files.js';
import { renameDirectories } from '../catalogue/directory-modes.js';
import { diskPath, isByPath, isLive, isOffered, pathOnTape } from '../conditions.js';
import type { Context } from '../context.js';
import { findClash } from '../import/import-checks.js';
import { checkPath } from '../input.js';
import { readLibraries } from '../libraries/libraries.js';
import { findJoining, renameExcludedPaths, resolveContained, storeJoining } from '../requests/joins.js';

interface RenameFilesInput {
  /** Path of a file, or a prefix with a trailing slash, which selects all files below the prefix. */
  from: string;
  to: string;
  /**
   * Whether the files were also renamed in a library that finds files by path. By default, the files keep their names
   * in the library.
   */
  isInLibrary?: boolean | null | undefined;
  isDryRun?: boolean | null | undefined;
}

interface Renaming {
  which: Sql;
  newPath: Sql;
  isInLibrary: boolean;
  before: number;
}

/**
 * Renames a file, or renames all files below a prefix in steps. Also renames withdrawn files.
 * @throws InvalidInputError
 * @throws NotFoundError if no file exists
 * @throws InUseError if a new path is taken, or a library is reading one of the files
 */
export async function renameFiles(ctx: Context, input: RenameFilesInput): Promise<ChosenFiles> {
  const { from, to, isDryRun } = input;
  const isInLibrary = input.isInLibrary ?? false;
  return await audited(
    ctx,
    { operation: 'renameFiles', kind: 'CATALOGUE', object: from, given: { to, isInLibrary, isDryRun } },
    async (auditEntry) => {
      const renaming = { ...readRenaming(from, to), isInLibrary, before: 0 };
      const chosen = await countChosen(ctx, renaming.which);
      if (chosen.files === 0) throw await whyNone(ctx, { path: from, which: renaming.which, done: 'not there' });
      if (isInLibrary) await refuseNoNames(ctx, renaming);
      // check all files before the first step: if a file cannot be renamed, the call must not rename any file
      await transaction(ctx.db.pool, 'checkRenames', async (tx) => {
        await tx.query(
          sql`CREATE TEMP TABLE leaving ON COMMIT DROP AS SELECT f.id, f.path, ${renaming.newPath} AS new_path FROM tape_file f WHERE ${renaming.which}`,
        );
        await refuseTakenPaths(tx, renaming, from);
      });
      if (isDryRun) return chosen;
      const done = await inSteps(
        ctx,
        {
          which: renaming.which,
          columns: sql`, ${renaming.newPath} AS new_path`,
          auditEntry: (step) => auditEntry({ given: { ...step, to, isInLibrary } }),
        },
        async (tx, before) => {
          await renameStep(ctx, tx, { ...renaming, before }, from);
          if (from.endsWith('/')) await renameDirectories(tx, { from, to });
        },
        (work) => transaction(ctx.db.pool, 'renameFiles', work),
      );
      return { ...done, requests: chosen.requests };
    },
  );
}

function readRenaming(from: string, to: string): Pick<Renaming, 'which' | 'newPath'> {
  const which = chosenFiles(from, 'from');
  chosenFiles(to, 'to');
  if (from === to) throw new InvalidInputError('to', `must be different from ${quote(from)}`);
  if (from.endsWith('/') !== to.endsWith('/')) {
    const kind = from.endsWith('/') ? 'a directory, with a trailing slash,' : 'a file, without a trailing slash,';
    throw new InvalidInputError('to', `must be ${kind} like ${quote(from)}, not ${quote(to)}`);
  }
  if (!from.endsWith('/')) return { which, newPath: sql`${checkPath('to', to)}::text` };
  // if the new prefix were below the old prefix, each step would rename the files of earlier steps again
  if (to.startsWith(from)) throw new InvalidInputError('to', `must not be below ${quote(from)}: ${quote(to)}`);
  const length = [...from].length;
  return { which, newPath: sql`(${to}::text || substr(f.path, ${length + 1}))` };
}

const MAX_NAMED = 3;

/**
 * Rejects new paths that are already taken.
 * @throws InUseError
 * @throws InvalidInputError if a new path is too long
 */
async function refuseTakenPaths(tx: Transaction, { isInLibrary, before }: Renaming, from: string): Promise<void> {
  await tx.query(sql`ANALYZE leaving`);
  const [long] = await tx.query<{ path: string }>(
    sql`SELECT new_path AS path FROM leaving WHERE octet_length(new_path) > 2048 LIMIT 1`,
  );
  if (long) checkPath('to', long.path);
  const [again] = await tx.query<{ path: string }>(
    sql`SELECT new_path AS path FROM leaving WHERE ${from.endsWith('/')} AND starts_with(new_path, ${from}) LIMIT 1`,
  );
  if (again)
    throw new InUseError(`the new path ${quote(again.path)} must not be below ${quote(from)}, the renamed directory`);
  const taken = await tx.query<{ path: string; isWithdrawn: boolean; files: number }>(
    sql`SELECT f.path, NOT ${isOffered} AS "isWithdrawn", (count(*) OVER ())::int AS files FROM leaving l JOIN tape_file f ON f.path = l.new_path
        ORDER BY f.path LIMIT ${MAX_NAMED}`,
  );
  refuseNamed(
    taken.map(({ path, isWithdrawn }) => ({ text: `${quote(path)}${isWithdrawn ? ' (withdrawn)' : ''}` })),
    { files: taken[0]?.files ?? 0, before },
    ['path is taken', 'paths are taken'],
  );
  const clash = await findClash(tx, sql`SELECT new_path AS path FROM leaving`);
  if (clash !== undefined) throw new InUseError(clash);
  if (isInLibrary) await refuseInLibrary(tx, before);
}

/** Rejects new paths outside a staging library's prefixes. @throws InvalidInputError */
async function refuseNoNames(ctx: Context, { which, newPath }: Renaming): Promise<void> {
  for (const library of await readLibraries(ctx)) {
    const { prefixes } = library.contract === 'STAGING' ? ctx.stagingTermsOf(library) : {};
    if (!prefixes) continue;
    const rows = await ctx.db.rows<{ path: string }>(
      sql`SELECT ${newPath} AS path FROM tape_file f JOIN volume v ON v.id IN (f.volume_id, f.copy_volume_id) AND v.library_id = ${library.id}
          WHERE ${which} AND NOT EXISTS (SELECT FROM unnest(${prefixes}::text[]) AS p (prefix) WHERE starts_with(${newPath}, p.prefix)) LIMIT 1`,
    );
    if (!rows[0]) continue;
    const known = prefixes.map((each) => quote(each)).join(', ');
    throw new InvalidInputError(
      'to',
      `must be below a prefix of library ${library.name} (${known}), but the new path ${quote(rows[0].path)} is not`,
    );
  }
}

/**
 * Rejects files that a library is staging, because the library can release a file only under the file's old name. Also
 * rejects a new path if another file already has that path in the library.
 * @throws InUseError
 */
async function refuseInLibrary(tx: Transaction, before: number): Promise<void> {
  const busy = await tx.query<{ text: string; files: number }>(
    sql`SELECT to_json(f.path)::text AS text, (count(*) OVER ())::int AS files FROM leaving l JOIN tape_file f ON f.id = l.id
        WHERE f.stage = 'RESTORING' OR EXISTS (SELECT FROM staging s WHERE s.file_id = f.id) ORDER BY f.path LIMIT ${MAX_NAMED}`,
  );
  refuseNamed(busy, { files: busy[0]?.files ?? 0, before }, [
    'file is being staged by its library',
    'files are being staged by their library',
  ]);
  const names = await tx.query<{ text: string; files: number }>(
    sql`SELECT to_json(f.path)::text AS text, (count(*) OVER ())::int AS files FROM leaving l JOIN tape_file f ON f.tape_path = l.new_path AND f.id <> l.id
        ORDER BY f.path LIMIT ${MAX_NAMED}`,
  );
  refuseNamed(names, { files: names[0]?.files ?? 0, before }, [
    'other file already has the new name in its library',
    'other files already have the new names in their library',
  ]);
}

function refuseNamed(
  named: readonly { text: string }[],
  { files, before }: { files: number; before: number },
  [one, many]: [string, string],
): void {
  if (named.length === 0) return;
  const more = files > named.length ? ', and others' : '';
  const done =
    before === 0 ? 'nothing was renamed' : `${plural(before, 'file was', 'files were')} renamed before this error`;
  throw new InUseError(`${plural(files, one, many)}: ${named.map(({ text }) => text).join(', ')}${more}; ${done}`);
}

const asRenamed = sql`(SELECT t.id, l.new_path AS path, t.size FROM leaving l JOIN tape_file t ON t.id = l.id)`;

async function renameStep(ctx: Context, tx: Transaction, renaming: Renaming, from: string): Promise<void> {
  await refuseTakenPaths(tx, renaming, from);
  const offered = sql`SELECT f.id FROM leaving l JOIN tape_file f ON f.id = l.id WHERE ${isOffered}`;
  await findJoining(ctx, tx, offered, { isNew: true, as: asRenamed });
  const requestIds = await lockRequests(
    tx,
    sql`${isLive} AND r.id IN (SELECT request_id FROM joining
          UNION SELECT a.request_id FROM leaving l JOIN unresolved_path a ON a.path IN (l.path, l.new_path))`,
  );
  await lockQuotas(tx, sql`q.id IN (SELECT quota_id FROM request WHERE id = ANY(${requestIds}::int[]))`);
  await lockLeaving(tx);
  await renameExcludedPaths(tx, requestIds);
  await resolveContained(tx, requestIds);
  await writePaths(tx, renaming);
  await storeJoining(ctx, tx);
  recordProgress(ctx, tx, requestIds);
}

const hasPathOnDisk = sql`(f.disk_id IS NOT NULL OR f.changed_disk_id IS NOT NULL OR f.stage = 'RESTORING')`;
/**
 * SQL condition that is true if a library finds the file `f` by path. The condition is also true if a library staged
 * the file and the file then moved to another library. The first library still needs the path to release the staged
 * file.
 */
const isFoundByPath = sql`(${isByPath(sql`f.volume_id`)} OR ${isByPath(sql`f.copy_volume_id`)}
  OR EXISTS (SELECT FROM staging s WHERE s.file_id = f.id))`;

async function writePaths(tx: Transaction, { isInLibrary }: Renaming): Promise<void> {
  await tx.query(
    sql`UPDATE stale_partial_file b SET path = nullif(coalesce(b.path, l.path), l.new_path) FROM leaving l WHERE b.file_id = l.id`,
  );
  await tx.query(
    sql`UPDATE tape_file f SET path = l.new_path,
          disk_path = CASE WHEN ${hasPathOnDisk} THEN nullif(${diskPath}, l.new_path) END,
          tape_path = CASE WHEN NOT ${isInLibrary} AND ${isFoundByPath} THEN nullif(${pathOnTape}, l.new_path) END
        FROM leaving l WHERE f.id = l.id`,
  );
}
