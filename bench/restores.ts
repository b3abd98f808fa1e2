/**
 * Shared parts of the restore benchmarks: a request for all files of a library, and `cp` with `sha256sum` of the same
 * files. Before each measurement, `settle` writes dirty pages to disk, fills the page cache with all files, and
 * allocates and frees memory.
 */
import { execFileSync } from 'node:child_process';
import { rmSync } from 'node:fs';
import path from 'node:path';
import type { Context } from '../src/domain/context.js';
import { createRequest } from '../src/domain/requests/create.js';
import { cancelRequest } from '../src/domain/requests/ends.js';
import { seconds, touchMemory, untilFinished, untilRemoved } from './kit.js';

interface Library {
  dir: string;
  /** Total size of the library's files. */
  bytes: number;
}

function shell(dir: string, script: string): void {
  execFileSync('sh', ['-c', script], { cwd: dir });
}

const libraryOf = (ctx: Context) => path.join(ctx.config.dataDir, 'library');

function settle(ctx: Context, { dir, bytes }: Library): void {
  shell(dir, `sync; find '${libraryOf(ctx)}' -type f -exec cat {} + > /dev/null`);
  touchMemory(bytes);
}

/**
 * Restores all files with one request, and removes the copies afterwards.
 * @returns the seconds until all copies are durable on disk
 */
export async function restoreAll(ctx: Context, library: Library): Promise<number> {
  let id = 0;
  settle(ctx, library);
  const spent = await seconds(async () => {
    id = await createRequest(ctx, { quota: 'bench', pattern: '/bench/' });
    const state = await untilFinished(ctx, id);
    if (state !== 'COMPLETED') throw new Error(`the request is ${state}, not COMPLETED`);
  });
  await cancelRequest(ctx, id);
  await untilRemoved(ctx);
  return spent;
}

/**
 * Copies the files and computes checksums of the copies. Without a sync, the copies are not durable.
 * @returns the seconds for copies, sync and checksums
 */
export async function copyAll(ctx: Context, library: Library, how: { isSynced: boolean }): Promise<number> {
  const copy = path.join(library.dir, 'copy');
  settle(ctx, library);
  const sync = how.isSynced ? `&& sync -f '${copy}'` : '';
  const spent = await seconds(async () => {
    const copied = `cp -r '${libraryOf(ctx)}' '${copy}' ${sync}`;
    shell(library.dir, `${copied} && find '${copy}' -type f -print0 | xargs -0 sha256sum > /dev/null`);
  });
  rmSync(copy, { recursive: true });
  return spent;
}
