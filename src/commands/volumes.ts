/** `volume`: what operators say of their cartridges, on the database itself. */
import { formatBytes } from '../bytes.js';
import type { Config } from '../config.js';
import { setMedium } from '../operations/catalogue/media.js';
import { readVolumeFigures } from '../operations/catalogue/volumes.js';
import { withContext } from './context.js';
import { CommandError, exitCodes } from './failure.js';
import { printJson, printLine, printTable } from './output.js';

interface Output {
  json?: boolean;
}

export async function volumeSet(
  config: Config,
  names: string[],
  options: Output & { medium: string; all?: boolean },
): Promise<void> {
  if (names.length > 0 === (options.all === true)) throw new CommandError('give names or --all', exitCodes.usage);
  const count = await withContext(config, (ctx) =>
    setMedium(ctx, { medium: options.medium, names: options.all ? undefined : names }),
  );
  if (options.json) printJson({ medium: options.medium, volumes: count });
  else printLine(`${count} volumes are of the medium ${options.medium}`);
}

export async function volumeList(config: Config, options: Output): Promise<void> {
  const volumes = await withContext(config, readVolumeFigures);
  if (options.json) for (const volume of volumes) printJson(volume);
  else {
    printTable(
      ['VOLUME', 'MEDIUM', 'FILES', 'SIZE'],
      volumes.map((volume) => [volume.name, volume.medium, String(volume.files), formatBytes(volume.bytes)]),
    );
  }
}
