/** `migrate`, `backup`, `restore`: the schema of the database; the embedded one as a folder of its own, and back. */
import { existsSync } from 'node:fs';
import { mkdtemp, readFile, rename, rm } from 'node:fs/promises';
import path from 'node:path';
import type { Command } from 'commander';
import type { Config } from '../config/config.js';
import { formatBytes } from '../core/bytes.js';
import { messageOf } from '../core/errors.js';
import { packageRoot } from '../core/package-root.js';
import { plural } from '../core/plural.js';
import { parseZonedTime } from '../core/time.js';
import type { Manifest } from '../db/backup/manifest.js';
import type { Context } from '../domain/context.js';
import type { PutBack } from '../domain/doctor/put-back.js';
import { readEnvironment, withMigrated } from './connection/context.js';
import { CommandError, UsageError } from './terminal/failure.js';
import { environment } from './terminal/io.js';
import { noteLine, type OutputOptions, printJson, printLine } from './terminal/output.js';

export function register(program: Command): void {
  program.command('migrate').action(async (options) => migrateDatabase(await readEnvironment(), options));
  program
    .command('backup <directory>')
    .action(async (directory, options) => backUp(await readEnvironment(), directory, options));
  program
    .command('restore [backup]')
    .option('--to-url [url]', 'copy the backup to an empty database at this URL (default: DATABASE_URL)')
    .option('--as-of <time>', 'without a backup: the time of the restored state, for example 2026-11-21T18:00:00Z')
    .action(async (backup, options) => restore(await readEnvironment(), backup, options));
}

async function migrateDatabase(config: Config, options: OutputOptions): Promise<void> {
  const makes = config.databaseUrl === undefined ? 'schema' : 'database';
  const migrated = await withMigrated(config, makes, async (_ctx, names) => names);
  if (options.json) printJson({ migrated });
  else printLine(migrated.length === 0 ? 'the schema is current' : `applied: ${migrated.join(', ')}`);
}

const PROGRAM = path.join(packageRoot, 'package.json');

async function backUp(config: Config, folder: string, options: OutputOptions): Promise<void> {
  if (config.databaseUrl !== undefined) {
    throw new CommandError(
      'the database of DATABASE_URL is backed up by the tools of its own server, such as pg_basebackup or pg_dump',
    );
  }
  const { requireCluster } = await import('../db/embedded/presence.js');
  const { startEmbedded } = await import('../db/embedded/embedded.js');
  const { makeBackup } = await import('../db/backup/make.js');
  const { sizeOf } = await import('../db/backup/manifest.js');
  const dataDir = path.join(config.dataDir, 'postgres');
  requireCluster(dataDir);
  const { version } = JSON.parse(await readFile(PROGRAM, 'utf8'));
  const embedded = await startEmbedded({ dataDir });
  const connection = embedded.config('postgres');
  const manifest = await makeBackup({ dataDir, connection, target: folder, program: version }).finally(() =>
    embedded.close(),
  );
  const { startedAt, endedAt, files } = manifest;
  const bytes = sizeOf(manifest);
  if (options.json) printJson({ backup: path.resolve(folder), startedAt, endedAt, files: files.length, bytes });
  else printLine(`${path.resolve(folder)}: the database as of ${endedAt}, ${formatBytes(bytes)}`);
}

interface RestoreOptions extends OutputOptions {
  asOf?: string;
  /** True: DATABASE_URL. */
  toUrl?: string | true;
}

async function restore(config: Config, backup: string | undefined, options: RestoreOptions): Promise<void> {
  if (backup === undefined && options.toUrl !== undefined)
    throw new UsageError('--to-url: of which backup? (its folder)');
  if (backup === undefined) return await settleGiven(config, options);
  if (options.asOf !== undefined) throw new UsageError('--as-of: a backup says itself of when it is');
  if (options.toUrl !== undefined) return await restoreTo(config, backup, options);
  if (config.databaseUrl !== undefined) {
    throw new UsageError(
      'DATABASE_URL names a database that its own tools put back; then "tapegate restore --as-of" without a backup settles it',
    );
  }
  const { readManifest } = await import('../db/backup/manifest.js');
  const manifest = await readManifest(backup);
  const place = path.resolve(config.dataDir, 'postgres');
  refuseDatabase(place);
  // all is done beside, and the one rename makes it the database: a "start" meanwhile, or a kill, meets all of it or nothing
  await withRestored(config, { backup, manifest }, async (aside, open) => {
    const settled = await open((ctx) => settle(ctx, stateOf(manifest)));
    refuseDatabase(place);
    await rename(path.join(aside, 'postgres'), place);
    const { syncFolders } = await import('../db/backup/files.js');
    await syncFolders(path.dirname(place), []);
    tell(settled, `${place}: the database as of ${manifest.endedAt}`, options);
  });
}

/** Copies a backup to an empty database of a server, by way of an embedded one. */
async function restoreTo(config: Config, backup: string, options: RestoreOptions): Promise<void> {
  const { readConfig } = await import('../config/config.js');
  const given = options.toUrl === true ? {} : { DATABASE_URL: options.toUrl };
  const { databaseUrl } = readConfig({ ...environment(), ...given }, { listens: false });
  if (databaseUrl === undefined) throw new UsageError('--to-url: name the database here, or in DATABASE_URL');
  const { readManifest } = await import('../db/backup/manifest.js');
  const manifest = await readManifest(backup);
  await withRestored(config, { backup, manifest }, async (_aside, open) => {
    const settled = await open(async (from) => {
      const done = await settle(from, stateOf(manifest));
      const { copyOver } = await import('../db/backup/copy-over.js');
      const to = await withMigrated({ ...config, databaseUrl }, 'database', async ({ db }) => db.config);
      await copyOver(from.db.config, to);
      return done;
    });
    const { nameOfUrl } = await import('../config/database-url.js');
    tell(settled, `${nameOfUrl(databaseUrl)}: the database as of ${manifest.endedAt}`, options);
  });
}

/**
 * Puts a backup back in a temporary directory of DATA_DIR, which is removed after the work.
 * @param work.open opens its database, once
 */
async function withRestored(
  config: Config,
  { backup, manifest }: { backup: string; manifest: Manifest },
  work: (aside: string, open: <T>(use: (ctx: Context) => Promise<T>) => Promise<T>) => Promise<void>,
): Promise<void> {
  const { makeFolder } = await import('../db/embedded/cluster.js');
  const dataDir = path.resolve(config.dataDir);
  makeFolder(dataDir);
  const aside = await mkdtemp(path.join(dataDir, 'restore-'));
  try {
    const { putBack } = await import('../db/backup/put-back.js');
    await putBack(backup, manifest, path.join(aside, 'postgres'));
    const there = { ...config, databaseUrl: undefined, dataDir: aside };
    await work(aside, (use) => withMigrated(there, 'schema', use));
  } finally {
    await rm(aside, { recursive: true, force: true }).catch((error) => noteLine(`${aside} stays: ${messageOf(error)}`));
  }
}

function refuseDatabase(place: string): void {
  if (!existsSync(place)) return;
  throw new CommandError(`there is a database in ${place}: stop what uses it, and move it away first`);
}

/** A database whose files are another program's. */
async function settleGiven(config: Config, options: RestoreOptions): Promise<void> {
  if (config.databaseUrl === undefined) throw new UsageError('restore which backup? (its folder)');
  const earliest = parseZonedTime(options.asOf ?? '');
  if (earliest === undefined) {
    throw new UsageError(`--as-of is to say when the database was as it is now, such as 2026-11-21T18:00:00Z`);
  }
  const asOf = new Date(`${earliest}Z`).toISOString();
  const settled = await withMigrated(config, 'migrations', async (ctx) => {
    const { findRunning } = await import('../domain/site/processes.js');
    const running = await findRunning(ctx);
    if (running.length > 0) {
      throw new CommandError(
        `the database is used by ${running.join(', ')}: stop them first, and wait a minute where they were killed`,
      );
    }
    return await settle(ctx, { earliest, asOf });
  });
  tell(settled, `the database of DATABASE_URL goes on from ${asOf}`, options);
}

interface RestoredState {
  earliest: string;
  asOf: string;
}

/** A restored server replays the WAL to the end of the backup, which `backup` and `restore` print. */
const stateOf = ({ startedAt, endedAt }: Manifest): RestoredState => ({
  earliest: parseZonedTime(startedAt) ?? '',
  asOf: endedAt,
});

async function settle(ctx: Context, state: RestoredState): Promise<PutBack> {
  const { settlePutBack } = await import('../domain/doctor/put-back.js');
  return await settlePutBack(ctx, state);
}

function tell(settled: PutBack, done: string, { json }: OutputOptions): void {
  if (json) {
    printJson(settled);
    return;
  }
  const { nextRequestId, letters, tokens } = settled;
  printLine(done);
  printLine(
    nextRequestId === null
      ? '  requests made since are not in it, and none can be made: no id is left'
      : `  requests made since are not in it; the next one has an id from ${nextRequestId} on`,
  );
  if (tokens > 0)
    printLine(
      `  ${plural(tokens, 'token is', 'tokens are')} good, with what was revoked since: see "tapegate token list"`,
    );
  if (letters > 0)
    printLine(`  ${plural(letters, 'letter')} that waited then will be sent, which may have been sent since`);
  printLine('It changes no restore disk, and sends no email or webhook, until "tapegate takeover".');
  printLine(
    'To replace the lost one, run "tapegate takeover", then "tapegate doctor --adopt", which compares the restore disks with it, and start Tapegate again.',
  );
}
