/** `volume set`, `volume list`: what operators say of their cartridges. What becomes of them is in volume-changes.ts. */
import type { Command } from 'commander';
import { formatBytes } from '../bytes.js';
import type { VolumeFigures } from '../operations/catalogue/volumes.js';
import { plural } from '../plural.js';
import { ask, askPages, FAILURE, type Page, type Result } from './client.js';
import { UsageError } from './failure.js';
import { jsonOption, type OutputOptions, printJson, printLine, printTable } from './output.js';
import { formatTime } from './times.js';
import { registerVolumeChanges } from './volume-changes.js';
import { operate, unwrapOperated } from './where.js';

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

const SET = `mutation ($input: SetVolumeInput!) {
  setVolume(input: $input) { ... on ChangedVolumes { volumes } ${FAILURE} }
}`;

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
      const answer = await ask<{ setVolume: Result<{ volumes: number }> }>(url, SET, { input });
      return unwrapOperated(answer.setVolume).volumes;
    },
  });
  if (options.json) printJson({ medium, volumes });
  else printLine(`${plural(volumes, 'volume is of the medium', 'volumes are of the medium')} ${medium}`);
}

/** A gateway from before is not asked for what it does not know. */
const volumesQuery = (retired: boolean) => `query ($first: Int, $after: String) {
  volumes(first: $first, after: $after${retired ? ', retired: true' : ''}) {
    edges { node { name library { name } medium files bytes${retired ? ' retiredAt retiredWhy' : ''} } } pageInfo { hasNextPage endCursor }
  }
}`;

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
      const pages = askPages(Number.POSITIVE_INFINITY, async (page) => {
        return (await ask<{ volumes: Page<VolumeNode> }>(url, volumesQuery(retired), page)).volumes;
      });
      const found: VolumeFigures[] = [];
      for await (const { edges } of pages) {
        found.push(...edges.map(({ node }) => ({ ...inUse, ...node, library: node.library.name })));
      }
      return found;
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
