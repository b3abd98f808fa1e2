/** Commands that manage libraries, the site's tape systems. */
import type { Command } from 'commander';
import { libraryTypes } from '../core/library-types.js';
import { formatBytes } from '../core/text/bytes.js';
import { plural } from '../core/text/plural.js';
import {
  AddLibraryDocument,
  LibrariesDocument,
  type LibraryRowFragment,
  type LibraryType,
  RemoveLibraryDocument,
  UpdateLibraryDocument,
} from '../generated/operations.js';
import { askChange, askNodes } from './connection/gateway-client.js';
import { findOperatedSite } from './connection/where.js';
import { formatSuspension } from './suspensions.js';
import { nameOfValue, noneToNull, orNone, toNumber, toSize, toValue } from './terminal/arguments.js';
import { UsageError } from './terminal/failure.js';
import { type OutputOptions, printJson, printLine, printResult, printRows, printTable } from './terminal/output.js';
import { formatProblem, formatTime } from './terminal/times.js';

const toType = toValue<LibraryType>('--type', Object.keys(libraryTypes));

export function register(program: Command): void {
  const library = program.command('library');
  addSizeOptions(library.command('add <name>'))
    .description('Add a tape system; engines use it without a restart')
    .requiredOption('--type <type>', 'library type, for example "directory"', toType)
    .option('--set <key=value...>', 'settings of the library type; a value that begins with [ or { is parsed as JSON')
    .addHelpText('after', SECRETS)
    .action((name, options) => addLibrary(name, options));
  addSizeOptions(library.command('set <name>'))
    .description('Change a tape system; engines use the changes without a restart')
    .option('--type <type>', "the library's current type; the type cannot be changed", toType)
    .option('--set <key=value...>', 'settings to change; an empty value (key=) removes a setting')
    .addHelpText('after', `\nEngines may interrupt active reads and repeat them.\n${SECRETS}`)
    .action((name, options) => updateLibrary(name, options));
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
  return { name, driveCount: drives, ...depth, settings: set && readSettings(set) };
}

async function addLibrary(name: string, options: LibraryOptions & { type: LibraryType }): Promise<void> {
  const input = { ...readInput(name, options), type: options.type };
  printLibrary(await askChange(findOperatedSite(), AddLibraryDocument, { input }), 'added', options);
}

async function updateLibrary(name: string, options: LibraryOptions & { type?: LibraryType }): Promise<void> {
  const input = { ...readInput(name, options), expectedType: options.type };
  if (Object.values(input).filter((given) => given !== undefined).length === 1) {
    throw new UsageError('nothing to change: give --set, --drives, --depth-files or --depth-bytes');
  }
  printLibrary(await askChange(findOperatedSite(), UpdateLibraryDocument, { input }), 'changed', options);
}

function printLibrary(row: LibraryRowFragment, done: string, options: OutputOptions): void {
  const library = presentLibrary(row);
  const { name, type } = library;
  printResult(library, `${done} library ${name}, type ${type ?? 'unknown'}: ${formatDrives(library)}`, options);
}

async function listLibraries(options: OutputOptions): Promise<void> {
  printRows((await askNodes(findOperatedSite(), LibrariesDocument, {})).map(presentLibrary), options, {
    header: ['LIBRARY', 'TYPE', 'VOLUMES', 'DRIVES', 'DEPTH', 'SENT', 'STATE'],
    cells: (library) => [
      library.name,
      library.type,
      library.volumeCount,
      library.driveCount,
      formatDepth(library),
      formatUsage(library),
      formatState(library),
    ],
  });
}

async function removeLibrary(name: string, { force, json }: OutputOptions & { force?: boolean }): Promise<void> {
  const removed = await askChange(findOperatedSite(), RemoveLibraryDocument, { name, force });
  if (json) return printJson(removed);
  const { name: removedName, driveCount, volumeCount, stagedFileCount, stagedBytes, left } = removed;
  printLine(
    `removed library ${removedName}, with ${plural(driveCount, 'drive')} and ${plural(volumeCount, 'empty volume')}`,
  );
  if (stagedFileCount === 0) return;
  printLine(
    `${plural(stagedFileCount, 'file')}, ${formatBytes(stagedBytes)}, may remain staged in the library, because they could not be released`,
  );
  printTable(
    ['FILE', 'DEMAND', 'UNTIL'],
    left.map(({ path, demand, until }) => [path, demand, until && formatTime(until)]),
  );
  if (left.length < stagedFileCount) printLine(`and ${stagedFileCount - left.length} more`);
}

const SECRETS = `
Put the programs and secrets that a library uses into TAPEGATE_LIBRARY_DIR, on each host with an engine.
Settings contain the names of these files: --set 'read=["tape-read"]', --set
tokenFile=site.token. docs/operators/libraries/README.md describes the settings.`;

/**
 * Parses settings of the form `key=value`.
 * @throws UsageError; its message omits the value, because the value might be a secret
 */
function readSettings(given: readonly string[]): { name: string; value: string }[] {
  const settings = new Map<string, string>();
  for (const each of given) {
    const at = each.indexOf('=');
    const name = each.slice(0, Math.max(at, 0));
    const value = each.slice(at + 1);
    if (name === '') throw new UsageError('--set must be key=value');
    if (settings.has(name)) throw new UsageError(`--set sets ${name} twice`);
    if (/^[[{]/.test(value) && !isJson(value)) {
      throw new UsageError(`--set ${name}: the value begins like JSON, but is not valid JSON`);
    }
    settings.set(name, value);
  }
  return [...settings].map(([name, value]) => ({ name, value }));
}

function isJson(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

type ShownLibrary = ReturnType<typeof presentLibrary>;

const presentLibrary = (library: LibraryRowFragment) => ({
  ...library,
  type: library.type && nameOfValue(library.type),
  settings: Object.fromEntries((library.settings ?? []).map(({ name, value }) => [name, value])),
});

function formatDrives({ contract, driveCount }: ShownLibrary): string {
  return contract === 'DRIVE' ? `${plural(driveCount, 'drive')}` : `stages files, reads ${driveCount} at a time`;
}

function formatDepth({ contract, depthFiles, depthBytes }: ShownLibrary): string {
  if (contract === 'DRIVE') return '-';
  const parts = [
    depthFiles === null ? [] : `${plural(depthFiles, 'file')}`,
    depthBytes === null ? [] : formatBytes(depthBytes),
  ];
  return parts.flat().join(', ') || 'default';
}

function formatState({ suspension, problem, nextTryAt: nextTry }: ShownLibrary): string {
  if (suspension) return formatSuspension(suspension);
  return problem === null ? 'in service' : formatProblem(new Date().toISOString(), `failed: ${problem}`, nextTry);
}

function formatUsage({ usage }: ShownLibrary): string {
  if (!usage?.length) return '-';
  const sent = usage.reduce((sum, each) => sum + each.sent, 0n);
  const bytes = usage.reduce((sum, each) => sum + each.bytes, 0n);
  return `${plural(sent, 'request')}, ${formatBytes(bytes)} read`;
}
