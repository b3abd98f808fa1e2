/** `adopt`: a site that runs django-nla_control moves in. */
import { createReadStream } from 'node:fs';
import { open } from 'node:fs/promises';
import { pipeline, type Readable } from 'node:stream';
import { createGunzip } from 'node:zlib';
import type { Command } from 'commander';
import { formatBytes } from '../bytes.js';
import type { Config } from '../config.js';
import type { Context } from '../context.js';
import type { Change } from '../operations/adoption/changes.js';
import type { Adoption, Difference } from '../operations/adoption/report.js';
import type { Source } from '../operations/adoption/tables.js';
import { plural } from '../plural.js';
import { readEnvironment, withContext } from './context.js';
import { UsageError } from './failure.js';
import { stdin } from './io.js';
import { jsonOption, type OutputOptions, printJson, printLine } from './output.js';

export function registerAdopt(program: Command): void {
  program
    .command('adopt [source]')
    .option(...jsonOption)
    .option('--dry-run', 'change nothing, and tell what would be')
    .option('--quotas <file>', 'users from CSV: user,size,email,notes')
    .option(
      '--requests <file>',
      'requests from CSV: id,quota,label,retention,request_date,patterns,files,notify_on_first_file,notify_on_last_file',
    )
    .option(
      '--archive-root <folder>',
      'below which archive paths are links to copies there; TAPEGATE_LINK_ROOT, or / where that is unset',
    )
    .option('--finish', 'the system before is no more: its names of copies go, and the copies that no request has')
    .option('--changes', 'tell what has come about here since, for a way back')
    .action((source, options) => adoptSite(source, options));
}

interface AdoptionOptions extends OutputOptions {
  dryRun?: boolean;
  quotas?: string;
  requests?: string;
  archiveRoot?: string;
  finish?: boolean;
  changes?: boolean;
}

async function adoptSite(source: string | undefined, options: AdoptionOptions): Promise<void> {
  const sources = [source, options.quotas, options.requests].filter((given) => given !== undefined).length;
  const works = [sources > 0, options.finish, options.changes].filter(Boolean).length;
  if (works !== 1)
    throw new UsageError('give a source (a URL, a dump, --quotas or --requests), or --finish, or --changes');
  const config = await readEnvironment();
  const archiveRoot = options.archiveRoot ?? config.linkRoot ?? '/';
  if (options.finish) return await withContext(config, (ctx) => finish(ctx, archiveRoot, options));
  if (options.changes) return await withContext(config, (ctx) => tellChanges(ctx, options));
  await withContext(config, (ctx) => takeOver(ctx, config, source, options));
}

async function takeOver(
  ctx: Context,
  config: Config,
  source: string | undefined,
  options: AdoptionOptions,
): Promise<void> {
  const { adopt } = await import('../engine/adoption/adopt.js');
  const { json = false, dryRun: isTrial = false } = options;
  const archiveRoot = options.archiveRoot ?? config.linkRoot ?? '/';
  const tell = (difference: Difference) => (json ? printJson(difference) : printLine(formatDifference(difference)));
  const how = { isTrial, archiveRoot, isWhole: source !== undefined };
  const adoption = await adopt(ctx, readSources(source, options), how, tell);
  if (json) printJson(adoption);
  else printLine(formatAdoption(adoption, isTrial));
}

/** One after another; nothing is opened before it is read. */
async function* readSources(source: string | undefined, { quotas, requests }: AdoptionOptions): Source {
  const { readCsv, readLive } = await import('../operations/adoption/tables.js');
  if (source !== undefined && /^postgres(ql)?:\/\//.test(source)) {
    yield* readLive(source);
  } else if (source !== undefined) {
    const { readDump } = await import('../operations/adoption/dump.js');
    yield* readDump(await openText(source), source);
  }
  if (quotas !== undefined) yield* readCsv('quota', { input: await openText(quotas), name: quotas });
  if (requests !== undefined) yield* readCsv('taperequest', { input: await openText(requests), name: requests });
}

/** Unpacked, where it is gzipped. @param file `-` is standard input, which is taken as it is */
async function openText(file: string): Promise<Readable> {
  if (file === '-') return stdin();
  const handle = await open(file);
  const { buffer, bytesRead } = await handle.read(Buffer.alloc(2), 0, 2, 0);
  await handle.close();
  const stream = createReadStream(file);
  const isGzipped = bytesRead === 2 && buffer[0] === 0x1f && buffer[1] === 0x8b;
  return isGzipped ? pipeline(stream, createGunzip(), () => {}) : stream; // what fails, fails who reads it
}

function formatDifference({ kind, thing, there, here }: Difference): string {
  return `${kind}: ${thing}: there ${there}; here ${here}`;
}

function formatAdoption(adoption: Adoption, isTrial: boolean): string {
  const { disks, quotas, files, copies, bytes, requests, changed, ended, same, differences } = adoption;
  const parts = [
    plural(disks, 'restore disk'),
    plural(quotas, 'user'),
    plural(files, 'file'),
    `${plural(copies, 'copy', 'copies')} (${formatBytes(bytes)})`,
    plural(requests, 'request'),
  ];
  const before = `adopted before: ${same} the same, ${changed} changed, ${ended} ended`;
  return `${isTrial ? 'would adopt' : 'adopted'} ${parts.join(', ')}; ${before}; ${plural(differences, 'difference')}`;
}

async function finish(ctx: Context, archiveRoot: string, { json = false }: OutputOptions): Promise<void> {
  const { finishAdoption } = await import('../engine/adoption/finish.js');
  const tell = (left: Difference) => (json ? printJson(left) : printLine(`${left.kind}: ${left.thing}: ${left.here}`));
  const done = await finishAdoption(ctx, archiveRoot, tell);
  if (json) return printJson(done);
  const { names, kept, left, released, bytes } = done;
  if (released > 0) {
    const copies = plural(released, 'copy', 'copies');
    printLine(`${copies} (${formatBytes(bytes)}) that no request has let go; engines remove them`);
  }
  printLine(`${plural(names, 'name')} of copies taken away`);
  if (left > 0) printLine(`${plural(left, 'name')} left, as told`);
  if (kept === 0) return;
  const remedy = 'an engine with TAPEGATE_LINK_ROOT turns these links, and then --finish takes the names away';
  printLine(`${plural(kept, 'name')} left, since the links at the archive paths lead there: ${remedy}`);
}

async function tellChanges(ctx: Context, { json }: OutputOptions): Promise<void> {
  const { listChanges } = await import('../operations/adoption/changes.js');
  for await (const change of listChanges(ctx)) {
    if (json) printJson(change);
    else printLine(formatChange(change));
  }
}

function formatChange({ kind, thing, here }: Change): string {
  const given = Object.entries(here).filter(([, value]) => value !== null && value !== '');
  return `${kind}: ${thing}${given.map(([name, value]) => ` ${name}=${JSON.stringify(value)}`).join('')}`;
}
