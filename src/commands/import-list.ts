/** Lists of other systems, of which an import makes rows: with what a list does not say, from options. */
import type { Skipped } from '../operations/catalogue/lists/list-rows.js';
import { createPlainReader } from '../operations/catalogue/lists/plain-list.js';
import { type ListFormat, readList } from '../operations/catalogue/lists/read-list.js';
import type { InventorySettings } from '../operations/catalogue/lists/s3-inventory.js';
import { UsageError } from './failure.js';
import { openInventory } from './import-inventory.js';
import type { ImportSource, OpenList } from './import-source.js';

/** What the command was given beside the file. */
export interface ListOptions {
  volume?: string;
  library?: string;
  prefix?: string;
  strip?: string;
  spot?: string;
  storageClass?: string;
}

const NAMES: Record<keyof ListOptions, string> = {
  volume: '--volume',
  library: '--library',
  prefix: '--prefix',
  strip: '--strip',
  spot: '--spot',
  storageClass: '--storage-class',
};

/** Rows that were made for an import say all of it themselves. @throws UsageError */
export function refuseListOptions(format: ListFormat, options: ListOptions): void {
  for (const [option, name] of Object.entries(NAMES)) {
    if (options[option as keyof ListOptions] === undefined) continue;
    throw new UsageError(
      `${name} is for lists of other systems (ls, s3-inventory): rows of ${format} say it themselves`,
    );
  }
}

/** @throws UsageError, CommandError */
export async function openList(source: ImportSource, format: ListFormat, options: ListOptions): Promise<OpenList> {
  const settings = readSettings(format, options);
  const skipped: Skipped = new Map();
  if (format === 's3-inventory') return await openInventory(source, settings, skipped);
  return {
    size: source.size,
    rows: (meter) => readList(meter(source.read()), createPlainReader(settings, skipped)),
    skipped,
    nameLines: (message) => message,
  };
}

function readSettings(format: ListFormat, options: ListOptions): InventorySettings {
  const { volume, library, spot, storageClass } = options;
  if (!volume)
    throw new UsageError(`--volume is missing: a list of the format ${format} does not say which volume has the files`);
  if (storageClass !== undefined && format !== 's3-inventory') {
    throw new UsageError(`--storage-class is for s3-inventory, and the list is ${format}`);
  }
  const storageClasses = storageClass?.split(',').map((name) => name.trim());
  const folders = { prefix: readFolder('prefix', options), strip: readFolder('strip', options) };
  return { volume, library, spot, storageClasses, ...folders };
}

/** Without a slash at its end; empty for none. */
function readFolder(option: 'prefix' | 'strip', options: ListOptions): string {
  const folder = options[option] ?? '/';
  if (!folder.startsWith('/')) {
    throw new UsageError(`${NAMES[option]} must begin with "/", not be ${JSON.stringify(folder)}`);
  }
  return folder.replace(/\/+$/, '');
}
