/** Commands that manage libraries, the site's tape systems. */
import type { Command } from 'commander';
import { formatBytes } from '../core/text/bytes.js';
import { plural } from '../core/text/plural.js';
import {
  AddLibrary,
  Libraries,
  type LibraryRowFragment,
  RemoveLibrary,
  SetLibrary,
} from '../generated/command-operations.js';
import { askChange, askNodes } from './connection/gateway-client.js';
import { findOperatedSite } from './connection/where.js';
import { formatSuspension } from './suspensions.js';
import { noneToNull, orNone, toNumber, toSize } from './terminal/arguments.js';
import { UsageError } from './terminal/failure.js';
import { type OutputOptions, printJson, printLine, printResult, printRows, printTable } from './terminal/output.js';
import { formatProblem, formatTime } from './terminal/times.js';

export function register(program: Command): void {
  const library = program.command('library');
  addSizeOptions(library.command('add <name>'))
    .description('Add a tape system; engines use it without a restart')
    .requiredOption('--kind <kind>', 'library type, for example "directory"')
    .option('--set <key=value...>', 'settings of the library type; a value that begins with [ or { is parsed as JSON')
    .addHelpText('after', SECRETS)
    .action((name, options) => addLibrary(name, options));
  addSizeOptions(library.command('set <name>'))
    .description('Change a tape system; engines use the changes without a restart')
    .option('--kind <kind>', "the library's current type; the type cannot be changed")
    .option('--set <key=value...>', 'settings to change; an empty value (key=) removes a setting')
    .addHelpText('after', `\nEngines may interrupt active reads and repeat them.\n${SECRETS}`)
    .action((name, options) => setLibrary(name, options));
  library
    .command('list')
    .description('List tape systems')
    .action((options) => listLibraries(options));
  library
    .command('remove <name>')
    .description('Remove a tape system that has no files in the catalogue')
    .option('--force', 'remove the library even if staged files cannot be released, and list these files')
    .action((name, options) => removeLibrary(name, options));
}

function addSizeOptions(command: Command): Command {
  const files = 'staging library: maximum number of files requested at a time; "none" restores the default';
  return command
    .option(
      '--drives <n>',
      'number of drives; for a staging library, number of concurrent reads (default for a new library: 2)',
      toNumber('--drives'),
    )
    .option('--depth-files <n>', files, orNone(toNumber('--depth-files')))
    .option(
      '--depth-bytes <size>',
      'staging library: maximum bytes requested at a time, for example 10T; "none" removes the limit',
      orNone(toSize('--depth-bytes')),
    );
}

interface LibraryOptions extends OutputOptions {
  set?: string[];
  drives?: number;
  depthFiles?: number | 'none';
  depthBytes?: bigint | 'none';
}

function readInput(name: string, { set, drives, depthFiles, depthBytes }: LibraryOptions) {
  const depth = { depthFiles: noneToNull(depthFiles), depthBytes: noneToNull(depthBytes) };
  return { name, drives, ...depth, settings: set && JSON.stringify(readSettings(set)) };
}

async function addLibrary(name: string, options: LibraryOptions & { kind: string }): Promise<void> {
  const input = { ...readInput(name, options), kind: options.kind };
  printLibrary(await askChange(findOperatedSite(), AddLibrary, { input }), 'added', options);
}

async function setLibrary(name: string, options: LibraryOptions & { kind?: string }): Promise<void> {
  const input = { ...readInput(name, options), kind: options.kind };
  if (Object.values(input).filter((given) => given !== undefined).length === 1) {
    throw new UsageError('nothing to change: give --set, --drives, --depth-files or --depth-bytes');
  }
  printLibrary(await askChange(findOperatedSite(), SetLibrary, { input }), 'changed', options);
}

function printLibrary(row: LibraryRowFragment, done: string, options: OutputOptions): void {
  const library = presentLibrary(row);
  const { name, kind } = library;
  printResult(library, `library ${name} is ${done}, type ${kind}: ${formatDrives(library)}`, options);
}

async function listLibraries(options: OutputOptions): Promise<void> {
  printRows((await askNodes(findOperatedSite(), Libraries, {})).map(presentLibrary), options, {
    header: ['LIBRARY', 'TYPE', 'VOLUMES', 'DRIVES', 'DEPTH', 'SENT', 'STATE'],
    cells: (library) => [
      library.name,
      library.kind,
      library.volumes,
      library.drives,
      formatDepth(library),
      formatUsage(library),
      formatState(library),
    ],
  });
}

async function removeLibrary(name: string, { force, json }: OutputOptions & { force?: boolean }): Promise<void> {
  const removed = await askChange(findOperatedSite(), RemoveLibrary, { name, force });
  if (json) return printJson(removed);
  const { name: removedName, drives, volumes, stagedFiles, stagedBytes, left } = removed;
  printLine(`removed library ${removedName}, with ${plural(drives, 'drive')} and ${plural(volumes, 'empty volume')}`);
  if (stagedFiles === 0) return;
  printLine(
    `${plural(stagedFiles, 'file')}, ${formatBytes(stagedBytes)}, may remain staged in the library, because they could not be released`,
  );
  printTable(
    ['FILE', 'DEMAND', 'UNTIL'],
    left.map(({ path, demand, until }) => [path, demand, until && formatTime(until)]),
  );
  if (left.length < stagedFiles) printLine(`and ${stagedFiles - left.length} more`);
}

const SECRETS = `
Put the programs and secrets that a library uses into TAPEGATE_LIBRARY_DIR, on each host with an engine.
Settings contain the names of these files: --set 'read=["tape-read"]', --set
tokenFile=site.token. docs/operators/libraries/README.md describes the settings.`;

/**
 * Parses settings of the form `key=value`.
 * @throws UsageError; its message omits the value, because the value might be a secret
 */
function readSettings(given: readonly string[]): object {
  const settings = new Map<string, unknown>();
  for (const each of given) {
    const at = each.indexOf('=');
    const key = each.slice(0, Math.max(at, 0));
    if (key === '') throw new UsageError('--set must be key=value');
    if (settings.has(key)) throw new UsageError(`--set sets ${key} twice`);
    settings.set(key, readValue(key, each.slice(at + 1)));
  }
  return Object.fromEntries(settings);
}

function readValue(key: string, text: string): unknown {
  if (!/^[[{]/.test(text)) return text;
  try {
    return JSON.parse(text);
  } catch {
    throw new UsageError(`--set ${key}: the value begins like JSON, but is not valid JSON`);
  }
}

type ShownLibrary = ReturnType<typeof presentLibrary>;

const presentLibrary = (library: LibraryRowFragment) => ({
  ...library,
  settings: JSON.parse(library.settings ?? '{}'),
});

function formatDrives({ contract, drives }: ShownLibrary): string {
  return contract === 'DRIVE' ? `${plural(drives, 'drive')}` : `stages files, reads ${drives} at a time`;
}

function formatDepth({ contract, depthFiles, depthBytes }: ShownLibrary): string {
  if (contract === 'DRIVE') return '-';
  const parts = [
    depthFiles === null ? [] : `${plural(depthFiles, 'file')}`,
    depthBytes === null ? [] : formatBytes(depthBytes),
  ];
  return parts.flat().join(', ') || 'default';
}

function formatState({ suspension, problem, nextTry }: ShownLibrary): string {
  if (suspension) return formatSuspension(suspension);
  return problem === null ? 'in service' : formatProblem(new Date().toISOString(), `failed: ${problem}`, nextTry);
}

function formatUsage({ usage }: ShownLibrary): string {
  if (!usage?.length) return '-';
  const sent = usage.reduce((sum, each) => sum + each.sent, 0n);
  const bytes = usage.reduce((sum, each) => sum + each.bytes, 0n);
  return `${plural(sent, 'request')}, ${formatBytes(bytes)} read`;
}
