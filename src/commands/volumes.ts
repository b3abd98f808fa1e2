/** `volume`: what operators say of their cartridges, on the database itself. */
import { formatBytes } from '../bytes.js';
import type { Config } from '../config.js';
import { listVolumes, setMedium } from '../operations/catalogue/media.js';
import { withContext } from './context.js';
import { UsageError } from './failure.js';
import { type OutputOptions, printJson, printLine, printTable } from './output.js';

export async function volumeSet(
  config: Config,
  names: string[],
  options: OutputOptions & { medium: string; all?: boolean },
): Promise<void> {
  if (names.length > 0 === (options.all === true)) throw new UsageError('give names or --all');
  const count = await withContext(config, (ctx) =>
    setMedium(ctx, { medium: options.medium, names: options.all ? undefined : names }),
  );
  if (options.json) printJson({ medium: options.medium, volumes: count });
  else printLine(`${count} volumes are of the medium ${options.medium}`);
}

export async function volumeList(config: Config, options: OutputOptions): Promise<void> {
  const volumes = await withContext(config, listVolumes);
  if (options.json) for (const volume of volumes) printJson(volume);
  else {
    printTable(
      ['VOLUME', 'MEDIUM', 'FILES', 'SIZE'],
      volumes.map((volume) => [volume.name, volume.medium, String(volume.files), formatBytes(volume.bytes)]),
    );
  }
}
