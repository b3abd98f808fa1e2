/** `migrate`, `import`, `archive`, `quota`, `disk`: what operators do, on the database itself. */

import { open, stat } from 'node:fs/promises';
import path from 'node:path';
import { formatBytes } from '../bytes.js';
import type { Config } from '../config.js';
import { archiveTree } from '../engine/archive.js';
import { addDisk, type DiskState, describeDisks } from '../engine/disk/setup.js';
import { importRows } from '../operations/catalogue/import.js';
import { readRows } from '../operations/catalogue/import-rows.js';
import { suspensionWords } from '../operations/disks/reservations.js';
import { getQuota, listQuotas, setQuota } from '../operations/quotas/quotas.js';
import { readUsed } from '../operations/quotas/used.js';
import { createBackend } from '../tape/index.js';
import { readSize } from './arguments.js';
import { withContext } from './context.js';
import { CommandError } from './failure.js';
import { type OutputOptions, printJson, printLine, printTable } from './output.js';

export async function migrate(config: Config, options: OutputOptions): Promise<void> {
  const migrated = await withContext(config, async (_ctx, names) => names);
  if (options.json) printJson({ migrated });
  else printLine(migrated.length === 0 ? 'the schema is current' : `applied: ${migrated.join(', ')}`);
}

export async function importFile(config: Config, file: string, options: OutputOptions): Promise<void> {
  const handle = file === '-' ? undefined : await open(file);
  const result = await withContext(config, (ctx) =>
    importRows(ctx, readRows(handle?.createReadStream() ?? process.stdin)),
  );
  if (options.json) printJson(result);
  else printLine(`${result.added} files added, ${result.updated} updated`);
}

export interface ArchiveOptions extends OutputOptions {
  prefix?: string;
  spot?: string;
  volumeSize: string;
  move?: boolean;
}

export async function archive(config: Config, dir: string, options: ArchiveOptions): Promise<void> {
  const isDir = await stat(dir).then(
    (stats) => stats.isDirectory(),
    () => false,
  );
  if (!isDir) throw new CommandError(`${dir} is not a directory`);
  const abort = new AbortController();
  process.once('SIGINT', () => abort.abort(new CommandError('stopped; run it again to go on')));
  const result = await withContext(config, (ctx) => {
    const backend = createBackend(config.tapeBackend, { dataDir: config.dataDir });
    const input = {
      dir: path.resolve(dir),
      volumeSize: readSize('--volume-size', options.volumeSize),
      ...(options.prefix === undefined ? {} : { prefix: options.prefix }),
      ...(options.spot === undefined ? {} : { spot: options.spot }),
      ...(options.move === undefined ? {} : { move: options.move }),
    };
    return archiveTree(ctx, backend, input, { signal: abort.signal });
  });
  if (options.json) printJson(result);
  else {
    printLine(`${result.archived} files archived, ${formatBytes(result.bytes)}`);
    if (result.unchanged > 0) printLine(`${result.unchanged} were on tape already`);
    if (result.skipped > 0) printLine(`${result.skipped} skipped: links and other things that are no regular files`);
  }
  if (result.failed.length > 0) {
    throw new CommandError(`${result.failed.length} files were not archived:\n  ${result.failed.join('\n  ')}`);
  }
}

export interface QuotaOptions extends OutputOptions {
  size: string;
  email?: string;
  notes?: string;
  weight?: string;
}

export async function quotaSet(config: Config, user: string, options: QuotaOptions): Promise<void> {
  const size = readSize('--size', options.size);
  const weight = options.weight === undefined ? undefined : Number(options.weight);
  const quota = await withContext(config, (ctx) =>
    setQuota(ctx, { user, size, email: options.email, notes: options.notes, weight }),
  );
  if (options.json) printJson(presentQuota(quota));
  else printLine(`quota of ${quota.user}: ${quota.size} bytes`);
}

function presentQuota(quota: Awaited<ReturnType<typeof getQuota>>) {
  const { id, user, size, used, email, notes, weight } = quota;
  return { id, user, size, used, email, notes, weight };
}

export async function quotaList(config: Config, options: OutputOptions): Promise<void> {
  const quotas = await withContext(config, async (ctx) => {
    const rows = [];
    for (const quota of await listQuotas(ctx)) rows.push({ ...quota, used: await readUsed(ctx, quota) });
    return rows;
  });
  if (options.json) for (const quota of quotas) printJson(presentQuota(quota));
  else {
    printTable(
      ['USER', 'SIZE', 'USED', 'WEIGHT', 'EMAIL', 'NOTES'],
      quotas.map((q) => [q.user, formatBytes(q.size), formatBytes(q.used), String(q.weight), q.email, q.notes]),
    );
  }
}

export async function quotaShow(config: Config, user: string, options: OutputOptions): Promise<void> {
  const quota = await withContext(config, async (ctx) => {
    const found = await getQuota(ctx, user);
    return { ...found, used: await readUsed(ctx, found) };
  });
  if (options.json) return printJson(presentQuota(quota));
  printTable(
    ['USER', quota.user],
    [
      ['SIZE', `${quota.size} bytes (${formatBytes(quota.size)})`],
      ['USED', `${quota.used} bytes (${formatBytes(quota.used)})`],
      ['WEIGHT', String(quota.weight)],
      ['EMAIL', quota.email],
      ['NOTES', quota.notes],
    ],
  );
}

export interface DiskOptions extends OutputOptions {
  size: string;
  mark?: boolean;
}

export async function diskAdd(config: Config, mountpoint: string, options: DiskOptions): Promise<void> {
  const size = readSize('--size', options.size);
  const input = { mountpoint: path.resolve(mountpoint), size, mark: options.mark === true };
  const { disk, problem } = await withContext(config, (ctx) => addDisk(ctx, input));
  if (options.json) printJson(disk);
  else printLine(`restore disk ${disk.mountpoint}: ${disk.size} bytes`);
  if (problem !== undefined) throw new CommandError(problem);
}

export async function diskList(config: Config, options: OutputOptions): Promise<void> {
  const disks = await withContext(config, describeDisks);
  if (options.json) for (const disk of disks) printJson(disk);
  else {
    printTable(
      ['MOUNTPOINT', 'SIZE', 'USED', 'RESERVED', 'REALLY FREE', 'STATE'],
      disks.map((d) => [
        d.mountpoint,
        formatBytes(d.size),
        formatBytes(d.used),
        formatBytes(d.reserved),
        d.free === null ? 'unknown' : formatBytes(d.free),
        stateOf(d),
      ]),
    );
  }
}

function stateOf({ suspension, problem }: DiskState): string {
  const suspended = suspension && `${suspensionWords[suspension.mode]}: ${suspension.reason}`;
  return [suspended, problem].filter((part) => part !== null).join('; ') || 'in service';
}
