/** The folders that Tapegate itself keeps are no sources: what is archived from them would be its own copies. */
import { realpath } from 'node:fs/promises';
import path from 'node:path';
import type { Context } from '../../context.js';
import { codeOf } from '../../errors.js';
import { listDisks } from '../../operations/disks/disks.js';

/**
 * Removing the sources of such a tree would remove tape copies as files that are safe on tape.
 * @throws Error when the directory holds, or lies in, the library, the embedded database or a restore disk
 */
export async function refuseOwnFolders(ctx: Context, dir: string): Promise<void> {
  const { dataDir } = ctx.config;
  const own = [path.resolve(dataDir, 'library'), path.resolve(dataDir, 'postgres')];
  for (const { mountpoint } of await listDisks(ctx)) own.push(mountpoint);
  const real = await realpath(dir);
  for (const folder of own) {
    const place = await realpath(folder).catch((error: unknown) => {
      if (['ENOENT', 'ENOTDIR', 'EACCES'].includes(codeOf(error) ?? '')) return undefined;
      throw error;
    });
    if (place === undefined || !(isWithin(place, real) || isWithin(real, place))) continue;
    throw new Error(`${dir} cannot be archived: Tapegate keeps its own files in ${folder}`);
  }
}

function isWithin(place: string, folder: string): boolean {
  return `${place}/`.startsWith(`${folder.replace(/\/+$/, '')}/`);
}
