/** `volume set`, `volume list`: what operators say of their cartridges. What becomes of them is in volume-changes.ts. */
import type { Command } from 'commander';
import { formatBytes } from '../bytes.js';
import type { VolumeFigures } from '../operations/catalogue/volumes.js';
import { plural } from '../plural.js';
import { askNodes } from './client.js';
import { UsageError } from './failure.js';
import { jsonOption, type OutputOptions, printJson, printResult, printTable } from './output.js';
import { formatTime } from './times.js';
import { registerVolumeChanges } from './volume-changes.js';
import { changeAfar, operate } from './where.js';

export function registerVolume(program: Command): void {
  const volume = program.command('volume');
  volume
    .command('set [names...]')
    .description('say of which medium volumes are: the planner goes by it')
    .option(...jsonOption)
    .requiredOption('--medium <name>', 'lto-8, lto-9 or linear')
    .option('--all', 'all volumes')
    .action((names, options) => setMedium(names, options));
  volume
    .command('list')
    .description('all volumes that are in use')
    .option(...jsonOption)
    .option('--retired', 'those that are retired as well, and why')
    .action((options) => listVolumes(options));
  registerVolumeChanges(volume);
}

interface MediumOptions extends OutputOptions {
  medium: string;
  all?: boolean;
}

async function setMedium(names: string[], options: MediumOptions): Promise<void> {
  const all = options.all === true;
  if (names.length > 0 === all) throw new UsageError('give names or --all');
  const { medium } = options;
  const volumes = await operate({
    here: async (ctx) => {
      const media = await import('../operations/catalogue/media.js');
      return await media.setMedium(ctx, { medium, names: all ? undefined : names });
    },
    afar: async (url) => {
      const input = all ? { all, medium } : { names, medium };
      const call = ['setVolume(input: SetVolumeInput!)', 'ChangedVolumes { volumes }'] as const;
      return (await changeAfar<{ volumes: number }>(url, call, { input })).volumes;
    },
  });
  const changed = plural(volumes, 'volume is of the medium', 'volumes are of the medium');
  printResult({ medium, volumes }, `${changed} ${medium}`, options);
}

type VolumeNode = Omit<VolumeFigures, 'library' | 'retiredAt' | 'retiredWhy'> &
  Partial<Pick<VolumeFigures, 'retiredAt' | 'retiredWhy'>> & { library: { name: string } };

const inUse = { retiredAt: null, retiredWhy: null };

interface ListOptions extends OutputOptions {
  retired?: boolean;
}

async function listVolumes(options: ListOptions): Promise<void> {
  const retired = options.retired ?? false;
  const volumes = await operate({
    here: async (ctx) => {
      const { readVolumeFigures } = await import('../operations/catalogue/volumes.js');
      const found = await readVolumeFigures(ctx, { retired });
      return found.map((volume) => ({ ...volume, retiredAt: volume.retiredAt && `${volume.retiredAt}Z` }));
    },
    afar: async (url) => {
      // a gateway from before is not asked for what it does not know
      const fields = `name library { name } medium files bytes${retired ? ' retiredAt retiredWhy' : ''}`;
      const list = retired ? 'volumes(retired: Boolean)' : 'volumes';
      const nodes = await askNodes<VolumeNode>(url, [list, fields], retired ? { retired } : {});
      return nodes.map((node): VolumeFigures => ({ ...inUse, ...node, library: node.library.name }));
    },
  });
  // without --retired all are in use, and there is nothing to say of that
  if (options.json)
    for (const { retiredAt, retiredWhy, ...volume } of volumes)
      printJson(retired ? { ...volume, retiredAt, retiredWhy } : volume);
  else {
    printTable(
      ['VOLUME', 'LIBRARY', 'MEDIUM', 'FILES', 'SIZE', ...(retired ? ['RETIRED'] : [])],
      volumes.map((volume) => [
        volume.name,
        volume.library,
        volume.medium,
        String(volume.files),
        formatBytes(volume.bytes),
        ...(retired ? [tellRetirement(volume)] : []),
      ]),
    );
  }
}

function tellRetirement({ retiredAt, retiredWhy }: VolumeFigures): string {
  if (retiredAt === null) return '-';
  return `${formatTime(retiredAt)}${retiredWhy === null ? '' : `: ${retiredWhy}`}`;
}
