/** Readers of restored copies: open file descriptors on a stalled disk, and memory use. */
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { chmodSync, mkdirSync, readdirSync, readlinkSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { open } from 'node:fs/promises';
import http from 'node:http';
import path from 'node:path';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import type { Response } from 'express';
import { expect, test } from 'vitest';
import { sendParts } from '../../rest/webdav/send.js';
import { CopyReader } from '../../src/restore-area/copies/copy-reader.js';
import { writeMarker } from '../../src/restore-area/marker.js';
import { listen } from '../support/ports.js';
import { makeTempDir } from '../support/temp-dir.js';
import { createGate, waitFor } from '../support/wait.js';

/** Returns whether this process has opened the file. */
function isOpen(file: string): boolean {
  return readdirSync('/proc/self/fd').some((fd) => {
    try {
      return readlinkSync(`/proc/self/fd/${fd}`) === file;
    } catch {
      return false; // the descriptor was closed meanwhile
    }
  });
}

test('a copy on a stalled disk is closed when the disk responds, after its reader has disconnected', async () => {
  const mountpoint = makeTempDir();
  const disk = { diskId: 1, mountpoint };
  await writeMarker(disk);
  const file = path.join(mountpoint, 'a/f');
  mkdirSync(path.dirname(file));
  writeFileSync(file, 'bytes');
  const { ino, mtimeNs, ctimeNs } = statSync(file, { bigint: true });
  const copyDoor = new CopyReader({ calls: 1, seconds: 0.3 });
  const opened = await copyDoor.open(
    { ...disk, path: '/a/f', size: 5n, ino, mtimeNs, ctimeNs, copyChecksum: null },
    { isPublic: false },
  );
  if ('closed' in opened) throw new Error(opened.message);
  const handle = await open('/proc/self/cmdline');
  const methods = Object.getPrototypeOf(handle) as { read(...args: unknown[]): Promise<unknown> };
  await handle.close();
  const real = methods.read;
  const gate = createGate();
  methods.read = async function hanging(this: unknown, ...args: unknown[]) {
    await gate.opened;
    return await real.apply(this, args);
  };
  try {
    await expect(opened.read(Buffer.alloc(5), 0)).rejects.toThrow('has not answered');
    await opened.close();
    await expect(opened.isUnchanged()).rejects.toThrow('have not answered');
    expect(isOpen(file)).toBe(true);
  } finally {
    gate.open();
    methods.read = real;
  }
  await waitFor('the copy to be closed', async () => !isOpen(file));
  rmSync(mountpoint, { recursive: true });
});

test('a large copy with another ctime is compared once, and is served then if it has its bytes', async () => {
  const mountpoint = makeTempDir();
  const disk = { diskId: 1, mountpoint };
  await writeMarker(disk);
  const file = path.join(mountpoint, 'f');
  writeFileSync(file, 'bytes');
  const { ino, mtimeNs, ctimeNs } = statSync(file, { bigint: true });
  const whole = {
    ino,
    mtimeNs,
    ctimeNs,
    size: 5n,
    copyChecksum: `sha256:${createHash('sha256').update('bytes').digest('hex')}`,
  };
  const copyDoor = new CopyReader({ calls: 1, seconds: 10, mostCompared: 4n });
  const read = async () => {
    const opened = await copyDoor.open({ ...disk, path: '/f', ...whole }, { isPublic: false });
    if ('closed' in opened) return opened.closed;
    await opened.close();
    return 'open';
  };
  const readAtLast = () => waitFor('the comparison', async () => [await read()].find((state) => state !== 'busy'));
  chmodSync(file, 0o640);
  expect([await read(), await readAtLast(), await read()]).toEqual(['busy', 'open', 'open']);
  writeFileSync(file, 'BYTES');
  whole.mtimeNs = statSync(file, { bigint: true }).mtimeNs;
  expect([await read(), await readAtLast()]).toEqual(['busy', 'changed']);
  rmSync(mountpoint, { recursive: true });
});

const PARTS = 40_000;

test('a reader of many parts uses constant memory', async () => {
  setFlagsFromString('--expose-gc');
  const collect = runInNewContext('gc') as () => void;
  const heap: number[] = [];
  const copy = {
    mtimeNs: 0n,
    read: async (_buffer: Uint8Array, position: number) => {
      if (position === 1000 || position === PARTS - 1) {
        collect();
        heap.push(process.memoryUsage().heapUsed);
      }
      return 1;
    },
    isUnchanged: async () => true,
    close: () => {},
  };
  const server = http.createServer((_req, res) => {
    const parts = [{ head: '', range: { start: 0, length: PARTS } }];
    sendParts(res as unknown as Response, copy, { parts, tail: '' }).catch((error) => res.destroy(error));
  });
  const port = await listen(server);
  const [answer] = (await once(http.get({ port, host: '127.0.0.1' }), 'response')) as [http.IncomingMessage];
  let size = 0;
  for await (const part of answer) size += part.length;
  server.close();
  expect(size).toBe(PARTS);
  expect((heap[1] ?? 0) - (heap[0] ?? 0)).toBeLessThan(2 * 1024 * 1024);
});
