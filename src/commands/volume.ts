/** `volume set`, `volume list`: what operators say of their cartridges. */
import type { Command } from 'commander';
import { formatBytes } from '../bytes.js';
import type { Config } from '../config.js';
import { readEnvironment, withContext } from './context.js';
import { UsageError } from './failure.js';
import { jsonOption, type OutputOptions, printJson, printLine, printTable } from './output.js';

export function registerVolume(program: Command): void {
  const volume = program.command('volume').description('volumes and their media');
  volume
    .command('set [names...]')
    .description('say of which medium volumes are: the planner goes by it')
    .option(...jsonOption)
    .requiredOption('--medium <name>', 'lto-8, lto-9 or linear')
    .option('--all', 'all volumes')
    .action((names, options) => setMedium(readEnvironment(), names, options));
  volume
    .command('list')
    .description('all volumes')
    .option(...jsonOption)
    .action((options) => listVolumes(readEnvironment(), options));
}

interface MediumOptions extends OutputOptions {
  medium: string;
  all?: boolean;
}

async function setMedium(config: Config, names: string[], options: MediumOptions): Promise<void> {
  if (names.length > 0 === (options.all === true)) throw new UsageError('give names or --all');
  const { medium } = options;
  const media = await import('../operations/catalogue/media.js');
  const volumes = await withContext(config, (ctx) =>
    media.setMedium(ctx, { medium, names: options.all ? undefined : names }),
  );
  if (options.json) printJson({ medium, volumes });
  else printLine(`${volumes} volumes are of the medium ${medium}`);
}

async function listVolumes(config: Config, options: OutputOptions): Promise<void> {
  const { readVolumeFigures } = await import('../operations/catalogue/volumes.js');
  const volumes = await withContext(config, readVolumeFigures);
  if (options.json) for (const volume of volumes) printJson(volume);
  else {
    printTable(
      ['VOLUME', 'MEDIUM', 'FILES', 'SIZE'],
      volumes.map((volume) => [volume.name, volume.medium, String(volume.files), formatBytes(volume.bytes)]),
    );
  }
}
