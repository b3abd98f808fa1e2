/** `library add`, `library set`, `library list`, `library remove`: the tape systems of the site. */
import type { Command } from 'commander';
import { formatBytes } from '../bytes.js';
import type { LibraryState } from '../operations/libraries/libraries.js';
import type { RemovedLibrary } from '../operations/libraries/remove.js';
import { plural } from '../plural.js';
import { readNumber, readSize } from './arguments.js';
import { askNodes } from './client.js';
import {
  changeLibrary,
  formatDepth,
  formatDrives,
  formatUsage,
  LIBRARY_FIELDS,
  type LibraryNode,
  presentLibrary,
  readNode,
  readSettings,
  SECRETS,
} from './library-nodes.js';
import { registerLibrarySet } from './library-set.js';
import { jsonOption, type OutputOptions, printJson, printLine, printResult, printRows, printTable } from './output.js';
import { formatSuspension } from './suspensions.js';
import { formatTime } from './times.js';
import { changeAfar, operate } from './where.js';

export function registerLibrary(program: Command): void {
  const library = program.command('library');
  library
    .command('add <name>')
    .description('add a tape system; engines take it up without a restart')
    .option(...jsonOption)
    .requiredOption('--kind <kind>', 'what it is, such as directory')
    .option('--set <key=value...>', 'settings of its kind; a value that begins with [ or { is JSON')
    .option('--drives <n>', 'its drives; of one that stages files, what reads from it at once (default: 2)')
    .option('--depth-files <n>', 'of one that stages: files that may be asked for at the same time')
    .option('--depth-bytes <size>', 'the same in bytes, such as 10T')
    .addHelpText('after', SECRETS)
    .action((name, options) => addLibrary(name, options));
  registerLibrarySet(library);
  library
    .command('list')
    .description('all tape systems')
    .option(...jsonOption)
    .action((options) => listLibraries(options));
  library
    .command('remove <name>')
    .description('take a tape system of which the catalogue has no files out of use for good')
    .option(...jsonOption)
    .option(
      '--force',
      'also when it cannot be told any more that nobody needs what it was asked for: tells what that is',
    )
    .action((name, options) => removeLibrary(name, options));
}

interface AddOptions extends OutputOptions {
  kind: string;
  set?: string[];
  drives?: string;
  depthFiles?: string;
  depthBytes?: string;
}

async function addLibrary(name: string, options: AddOptions): Promise<void> {
  const settings = readSettings(options.set ?? []);
  const input = {
    ...{ name, kind: options.kind },
    drives: options.drives === undefined ? undefined : readNumber('--drives', options.drives),
    depthFiles: options.depthFiles === undefined ? undefined : readNumber('--depth-files', options.depthFiles),
    depthBytes: options.depthBytes === undefined ? undefined : readSize('--depth-bytes', options.depthBytes),
  };
  const library = await operate<LibraryState>({
    here: async (ctx) => {
      const add = await import('../operations/libraries/add.js');
      return { ...(await add.addLibrary(ctx, { ...input, settings })), volumes: 0, suspension: null, usage: [] };
    },
    afar: async (url) => {
      const variables = { input: { ...input, settings: JSON.stringify(settings) } };
      return await changeLibrary(url, 'addLibrary(input: AddLibraryInput!)', variables);
    },
  });
  const added = `library ${library.name} is added, of the kind ${library.kind}: ${formatDrives(library)}`;
  printResult(presentLibrary(library), added, options);
}

async function listLibraries(options: OutputOptions): Promise<void> {
  const libraries = await operate<LibraryState[]>({
    here: async (ctx) => {
      const { describeLibraries } = await import('../operations/libraries/libraries.js');
      return await describeLibraries(ctx);
    },
    afar: async (url) => (await askNodes<LibraryNode>(url, ['libraries', LIBRARY_FIELDS])).map(readNode),
  });
  printRows(libraries, options, {
    header: ['LIBRARY', 'KIND', 'VOLUMES', 'DRIVES', 'DEPTH', 'SENT', 'STATE'],
    cells: (library) => [
      library.name,
      library.kind,
      String(library.volumes),
      String(library.drives),
      formatDepth(library),
      formatUsage(library),
      library.suspension ? formatSuspension(library.suspension) : 'in service',
    ],
    present: presentLibrary,
  });
}

const REMOVED = 'RemovedLibrary { name drives volumes leftFiles leftBytes left { path demand until } }';

interface RemoveOptions extends OutputOptions {
  force?: boolean;
}

async function removeLibrary(name: string, { force, json }: RemoveOptions): Promise<void> {
  type Removed = Omit<RemovedLibrary, 'id'>;
  const removed = await operate<Removed>({
    here: async (ctx) => {
      const remove = await import('../operations/libraries/remove.js');
      return await remove.removeLibrary(ctx, name, { force });
    },
    afar: (url) => changeAfar<Removed>(url, ['removeLibrary(name: String!, force: Boolean)', REMOVED], { name, force }),
  });
  const { name: was, drives, volumes, leftFiles, leftBytes, left } = removed;
  if (json) return printJson({ name: was, drives, volumes, leftFiles, leftBytes, left });
  printLine(`library ${was} is removed, with ${plural(drives, 'drive')} and ${volumes} empty volumes`);
  if (leftFiles === 0) return;
  printLine(
    `${plural(leftFiles, 'file')} of ${formatBytes(leftBytes)} may stay staged there: it was not told that nobody needs them`,
  );
  printTable(
    ['FILE', 'DEMAND', 'UNTIL'],
    left.map(({ path, demand, until }) => [path, demand ?? '-', until === null ? '-' : formatTime(until)]),
  );
  if (left.length < leftFiles) printLine(`and ${leftFiles - left.length} more`);
}
