/**
 * The bytes of a restored file of SIZE (1 GiB), as curl reads them from the gateway's door over TLS and without it. Beside it is a server of Node.js
 * alone that does `createReadStream(…).pipe(…)`, in the same process, in turns of alternating order, ROUNDS (7) of them, medians.
 *
 *   npm run compile && node dist/bench/door.js
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createReadStream, mkdirSync, statSync, writeFileSync } from 'node:fs';
import http from 'node:http';
import https from 'node:https';
import type { AddressInfo } from 'node:net';
import path from 'node:path';
import { startGateway } from '../src/app.js';
import type { Context } from '../src/context.js';
import { writeMarker } from '../src/engine/disk/marker.js';
import { setDisk } from '../src/operations/disks/disks.js';
import { makeCertificate } from '../test/support/certificate.js';
import { inTurns, tellFigure, WARM_ROUNDS } from './figures.js';
import { seconds, touchMemory, withBench, writeFiles } from './kit.js';

const SIZE = Number(process.env.SIZE ?? 1024 ** 3);
const ROUNDS = Number(process.env.ROUNDS ?? 7);

/** As many readers as are told at once. */
async function read(url: string, readers: number): Promise<void> {
  const curls = Array.from({ length: readers }, () =>
    spawn('curl', ['-fsSk', '-o', '/dev/null', url], { stdio: ['ignore', 'inherit', 'inherit'] }),
  );
  const codes = await Promise.all(curls.map((curl) => once(curl, 'exit')));
  if (codes.some(([code]) => code !== 0)) throw new Error(`curl ended with ${codes}`);
}

/** Puts a file on a restore disk, as a restore would have left it. @returns where it is */
async function restoreFile(ctx: Context, dir: string): Promise<string> {
  const mountpoint = path.join(dir, 'disk');
  mkdirSync(mountpoint);
  const { id } = await setDisk(ctx, { mountpoint, size: 10n ** 15n });
  await writeMarker({ diskId: id, mountpoint });
  await writeFiles(mountpoint, 1, SIZE);
  const file = '/0000/file-000000.nc';
  const { ino, mtimeNs, ctimeNs } = statSync(mountpoint + file, { bigint: true });
  await ctx.db.prisma.tapeFile.create({
    data: {
      ...{ path: file, size: BigInt(SIZE), stage: 'RESTORED', diskId: id },
      ...{ diskIno: ino, diskMtimeNs: mtimeNs, diskCtimeNs: ctimeNs },
    },
  });
  return mountpoint + file;
}

async function measure(ctx: Context, file: string, { cert, key }: { cert: string; key: string }, isTls: boolean) {
  const serve: http.RequestListener = (_req, res) => {
    res.setHeader('Content-Length', SIZE);
    createReadStream(file).pipe(res);
  };
  const server = isTls ? https.createServer({ cert, key }, serve) : http.createServer(serve);
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const files = isTls ? {} : { tlsCert: undefined, tlsKey: undefined };
  const gateway = await startGateway({ ...ctx, config: { ...ctx.config, ...files } });
  const scheme = isTls ? 'https' : 'http';
  const urls = {
    ours: `${gateway.url}/webdav/0000/file-000000.nc`,
    reference: `${scheme}://127.0.0.1:${(server.address() as AddressInfo).port}/`,
  };
  for (const readers of [1, 4]) {
    const rate = (url: string) => async () => (readers * SIZE) / 1e6 / (await seconds(() => read(url, readers)));
    const ways = { ours: rate(urls.ours), reference: rate(urls.reference) };
    await inTurns(ways, Math.min(WARM_ROUNDS, ROUNDS));
    const { ours, reference } = await inTurns(ways, ROUNDS);
    tellFigure({
      work: `a restored file read over ${scheme} by ${readers === 1 ? 'one reader' : `${readers} readers`}`,
      ours: ours.median,
      reference: reference.median,
      beside: `node:${scheme} with createReadStream`,
      unit: 'MB/s',
      bound: 0.8,
    });
  }
  await gateway.close();
  server.close();
}

await withBench(
  async (ctx, dir) => {
    const certificate = makeCertificate();
    const files = { tlsCert: path.join(dir, 'cert.pem'), tlsKey: path.join(dir, 'key.pem') };
    writeFileSync(files.tlsCert, certificate.cert);
    writeFileSync(files.tlsKey, certificate.key, { mode: 0o600 });
    const file = await restoreFile(ctx, dir);
    touchMemory(256 * 1024 * 1024);
    const served = { ...ctx, config: { ...ctx.config, ...files } };
    await measure(served, file, certificate, true);
    await measure(served, file, certificate, false);
  },
  { PORT: '0', WEBDAV: 'all' },
);
