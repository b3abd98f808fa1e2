/** Commands that migrate the schema, back up the embedded database, and restore a backup. */
import { existsSync } from 'node:fs';
import { mkdtemp, readFile, rename, rm } from 'node:fs/promises';
import path from 'node:path';
import type { Command } from 'commander';
import type { Config } from '../config/config.js';
import { messageOf } from '../core/errors.js';
import { packageRoot } from '../core/package-root.js';
import { formatBytes } from '../core/text/bytes.js';
import { plural } from '../core/text/plural.js';
import { parseZonedTime } from '../core/time.js';
import type { Manifest } from '../db/backup/manifest.js';
import type { Context } from '../domain/context.js';
import type { PutBack } from '../domain/doctor/put-back.js';
import { readEnvironment, withMigrated } from './connection/context.js';
import { CommandError, UsageError } from './terminal/failure.js';
import { environment } from './terminal/io.js';
import { type OutputOptions, printJson, printLine, printToStderr } from './terminal/output.js';

export function register(program: Command): void {
  program.command('migrate').action(async (options) => migrateDatabase(await readEnvironment(), options));
  program
    .command('backup <directory>')
    .action(async (directory, options) => backUp(await readEnvironment(), directory, options));
  program
    .command('restore [backup]')
    .option('--to-url [url]', 'copy the backup to an empty database at this URL (default: DATABASE_URL)')
    .option(
      '--as-of <time>',
      'if other tools restored the database: time of the restored state, such as 2026-11-21T18:00:00Z',
    )
    .action(async (backup, options) => restore(await readEnvironment(), backup, options));
}

async function migrateDatabase(config: Config, options: OutputOptions): Promise<void> {
  const makes = config.databaseUrl === undefined ? 'schema' : 'database';
  const migrated = await withMigrated(config, makes, async (_ctx, names) => names);
  if (options.json) printJson({ migrated });
  else printLine(migrated.length === 0 ? 'the schema is current' : `applied: ${migrated.join(', ')}`);
}

const PROGRAM = path.join(packageRoot, 'package.json');

async function backUp(config: Config, directory: string, options: OutputOptions): Promise<void> {
  if (config.databaseUrl !== undefined) {
    throw new CommandError(
      'this command can only back up an embedded database: to back up the database in DATABASE_URL, use PostgreSQL tools, such as pg_basebackup or pg_dump',
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
  const manifest = await makeBackup({ dataDir, connection, target: directory, program: version }).finally(() =>
    embedded.close(),
  );
  const { startedAt, endedAt, files } = manifest;
  const bytes = sizeOf(manifest);
  if (options.json) printJson({ backup: path.resolve(directory), startedAt, endedAt, files: files.length, bytes });
  else printLine(`${path.resolve(directory)} contains the database as of ${endedAt}, ${formatBytes(bytes)}`);
}

interface RestoreOptions extends OutputOptions {
  asOf?: string;
  toUrl?: string | true;
}

async function restore(config: Config, backup: string | undefined, options: RestoreOptions): Promise<void> {
  if (backup === undefined && options.toUrl !== undefined) throw new UsageError('--to-url needs a backup directory');
  if (backup === undefined) return await completeRestore(config, options);
  if (options.asOf !== undefined)
    throw new UsageError('--as-of cannot be used with a backup, because a backup records its own time');
  if (options.toUrl !== undefined) return await restoreTo(config, backup, options);
  if (config.databaseUrl !== undefined) {
    throw new UsageError(
      'DATABASE_URL is set: restore that database with PostgreSQL tools, then run "tapegate restore --as-of" without a backup',
    );
  }
  const { readManifest } = await import('../db/backup/manifest.js');
  const manifest = await readManifest(backup);
  const target = path.resolve(config.dataDir, 'postgres');
  refuseDatabase(target);
  // restore to a temporary directory, and then rename the directory, so that a concurrent `tapegate start` never finds
  // an incomplete database
  await withRestored(config, { backup, manifest }, async (temporary, open) => {
    const settled = await open((ctx) => settle(ctx, stateOf(manifest)));
    refuseDatabase(target);
    await rename(path.join(temporary, 'postgres'), target);
    const { syncDirectories } = await import('../db/backup/cluster-files.js');
    await syncDirectories(path.dirname(target), []);
    printRestored(settled, `${target} contains the database as of ${manifest.endedAt}`, options);
  });
}

/**
 * Restores a backup to a temporary embedded database, and copies this database to an empty database on another server.
 */
async function restoreTo(config: Config, backup: string, options: RestoreOptions): Promise<void> {
  const { readConfig } = await import('../config/config.js');
  const given = options.toUrl === true ? {} : { DATABASE_URL: options.toUrl };
  const { databaseUrl } = readConfig({ ...environment(), ...given }, { listens: false });
  if (databaseUrl === undefined) throw new UsageError('give --to-url a URL, or set DATABASE_URL');
  const { readManifest } = await import('../db/backup/manifest.js');
  const manifest = await readManifest(backup);
  await withRestored(config, { backup, manifest }, async (_temporary, open) => {
    const settled = await open(async (from) => {
      const done = await settle(from, stateOf(manifest));
      const { copyOver } = await import('../db/backup/copy-over.js');
      const to = await withMigrated({ ...config, databaseUrl }, 'database', async ({ db }) => db.config);
      await copyOver(from.db.config, to);
      return done;
    });
    const { nameOfUrl } = await import('../config/database-url.js');
    printRestored(settled, `${nameOfUrl(databaseUrl)} contains the database as of ${manifest.endedAt}`, options);
  });
}

/**
 * Restores a backup to a temporary directory in DATA_DIR, calls `work`, and then removes the directory.
 * @param work a function that uses the restored database, and may call `open` at most once
 */
async function withRestored(
  config: Config,
  { backup, manifest }: { backup: string; manifest: Manifest },
  work: (temporary: string, open: <T>(use: (ctx: Context) => Promise<T>) => Promise<T>) => Promise<void>,
): Promise<void> {
  const { createDirectory } = await import('../db/embedded/cluster.js');
  const dataDir = path.resolve(config.dataDir);
  createDirectory(dataDir);
  const temporary = await mkdtemp(path.join(dataDir, 'restore-'));
  try {
    const { putBack } = await import('../db/backup/put-back.js');
    await putBack(backup, manifest, path.join(temporary, 'postgres'));
    const there = { ...config, databaseUrl: undefined, dataDir: temporary };
    await work(temporary, (use) => withMigrated(there, 'schema', use));
  } finally {
    await rm(temporary, { recursive: true, force: true }).catch((error) =>
      printToStderr(`cannot remove ${temporary}: ${messageOf(error)}`),
    );
  }
}

function refuseDatabase(directory: string): void {
  if (!existsSync(directory)) return;
  throw new CommandError(`there is already a database in ${directory}: stop Tapegate and move the database away first`);
}

/** Completes the restore of the database at DATABASE_URL after PostgreSQL's own tools have restored its data. */
async function completeRestore(config: Config, options: RestoreOptions): Promise<void> {
  if (config.databaseUrl === undefined)
    throw new UsageError('give a backup directory, or set DATABASE_URL and give --as-of');
  const earliest = parseZonedTime(options.asOf ?? '');
  if (earliest === undefined) {
    throw new UsageError(`--as-of must be the time of the restored state, such as 2026-11-21T18:00:00Z`);
  }
  const asOf = new Date(`${earliest}Z`).toISOString();
  const settled = await withMigrated(config, 'migrations', async (ctx) => {
    const { findRunning } = await import('../domain/site/processes.js');
    const running = await findRunning(ctx);
    if (running.length > 0) {
      throw new CommandError(
        `the database is in use by ${running.join(', ')}: stop these processes first. If they have already stopped, wait a minute: a restored dump contains their last heartbeats`,
      );
    }
    return await settle(ctx, { earliest, asOf });
  });
  printRestored(settled, `the database in DATABASE_URL is restored to the state of ${asOf}`, options);
}

interface RestoredState {
  earliest: string;
  asOf: string;
}

/**
 * Returns the times of the state that a backup restores. `asOf` is the end of the backup, because PostgreSQL replays
 * the WAL up to that time.
 */
const stateOf = ({ startedAt, endedAt }: Manifest): RestoredState => ({
  earliest: parseZonedTime(startedAt) ?? '',
  asOf: endedAt,
});

async function settle(ctx: Context, state: RestoredState): Promise<PutBack> {
  const { settlePutBack } = await import('../domain/doctor/put-back.js');
  return await settlePutBack(ctx, state);
}

function printRestored(settled: PutBack, done: string, { json }: OutputOptions): void {
  if (json) {
    printJson(settled);
    return;
  }
  const { nextRequestId, emails, tokens } = settled;
  printLine(done);
  printLine(
    nextRequestId === null
      ? '  requests created after this time are missing, and no ids are left for new requests'
      : `  requests created after this time are missing; ids of new requests begin at ${nextRequestId}`,
  );
  if (tokens > 0)
    printLine(
      `  ${plural(tokens, 'token is', 'tokens are')} valid, including tokens that were revoked after this time: see "tapegate token list"`,
    );
  if (emails > 0) printLine(`  ${plural(emails, 'waiting email')} will be sent, perhaps for a second time`);
  printLine('Until you run "tapegate takeover", Tapegate does not change restore disks, send emails or call webhooks.');
  printLine(
    'To replace the lost database, run "tapegate takeover", then run "tapegate doctor --adopt" to compare the restore disks with the restored database, and then start Tapegate.',
  );
}
