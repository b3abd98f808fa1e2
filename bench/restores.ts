/**
 * What the benchmarks of restores share: requests for all of a library, and what `cp` and `sha256sum` do with the same files, in turns.
 * All read from the page cache, filled before each measurement by reading all files once, and all begin with nothing left to be
 * written and with memory that was just in use.
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
  /** Bytes of all of its files. */
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

/** Seconds from the request to its end, when all of it is on disk for good; its copies are removed afterwards. */
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

/** Seconds for copies and checksums of the same files; without a sync the copies are not durable. */
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
