/** `library set`: a tape system is changed while everything runs. */
import type { Command } from 'commander';
import type { LibraryState } from '../operations/libraries/libraries.js';
import { orNone, readNumber, readSize } from './arguments.js';
import { UsageError } from './failure.js';
import { changeLibrary, formatDrives, presentLibrary, readSettings, SECRETS } from './library-nodes.js';
import { jsonOption, type OutputOptions, printResult } from './output.js';
import { operate } from './where.js';

export function registerLibrarySet(library: Command): void {
  library
    .command('set <name>')
    .description('change a tape system: only what is given; engines follow without a restart')
    .option(...jsonOption)
    .option('--kind <kind>', 'must be what it is: another kind could not read its volumes')
    .option('--set <key=value...>', 'settings of its kind; one without a value is taken away')
    .option('--drives <n>', 'its drives; of one that stages files, what reads from it at once')
    .option('--depth-files <n>', 'of one that stages: files that may be asked for at the same time, or none')
    .option('--depth-bytes <size>', 'the same in bytes, such as 10T, or none')
    .addHelpText(
      'after',
      `\nA depth that is "none" is taken away. What is read from it just now may be read again.\n${SECRETS}`,
    )
    .action((name, options) => setLibrary(name, options));
}

interface SetOptions extends OutputOptions {
  kind?: string;
  set?: string[];
  drives?: string;
  depthFiles?: string;
  depthBytes?: string;
}

async function setLibrary(name: string, options: SetOptions): Promise<void> {
  const { kind, set, drives, depthFiles, depthBytes } = options;
  if ([kind, set, drives, depthFiles, depthBytes].every((given) => given === undefined)) {
    throw new UsageError('give what is to change: --set, --drives, --depth-files or --depth-bytes');
  }
  const settings = set && readSettings(set);
  const input = {
    ...{ name, kind },
    drives: drives === undefined ? undefined : readNumber('--drives', drives),
    depthFiles: orNone(depthFiles, (text) => readNumber('--depth-files', text)),
    depthBytes: orNone(depthBytes, (text) => readSize('--depth-bytes', text)),
  };
  const library = await operate<LibraryState>({
    here: async (ctx) => {
      const change = await import('../operations/libraries/set.js');
      const { describeLibraries } = await import('../operations/libraries/libraries.js');
      const changed = await change.setLibrary(ctx, { ...input, settings });
      const state = (await describeLibraries(ctx)).find(({ id }) => id === changed.id);
      return { volumes: 0, suspension: null, usage: [], ...state, ...changed };
    },
    afar: async (url) => {
      const variables = { input: { ...input, settings: settings && JSON.stringify(settings) } };
      return await changeLibrary(url, 'setLibrary(input: SetLibraryInput!)', variables);
    },
  });
  const changed = `library ${library.name} is changed, of the kind ${library.kind}: ${formatDrives(library)}`;
  printResult(presentLibrary(library), changed, options);
}
