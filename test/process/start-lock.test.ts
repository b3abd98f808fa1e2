/** The lock that processes start the embedded server under. */
import { createHash } from 'node:crypto';
import { existsSync, writeFileSync } from 'node:fs';
import net from 'node:net';
import path from 'node:path';
import { afterAll, expect, test } from 'vitest';
import { type Embedded, startEmbedded } from '../../src/database/embedded.js';
import { cleanUp, makeDataDir, serverPid, startProcess } from '../support/process.js';

afterAll(cleanUp);

const startIn = (dataDir: string): Promise<Embedded> =>
  startEmbedded({ dataDir: path.join(dataDir, 'postgres'), startTimeoutMs: 20_000 });

test.runIf(process.platform === 'linux')(
  'a socket of the name that the start had locked with keeps nobody from starting',
  async () => {
    const dataDir = makeDataDir();
    const cluster = path.join(dataDir, 'postgres');
    const hash = createHash('sha256').update(cluster).digest('hex').slice(0, 32);
    const squatter = net.createServer();
    await new Promise<void>((resolve) => squatter.listen(`\0tapegate-start-${hash}`, resolve));
    const server = await startIn(dataDir);
    expect(serverPid(dataDir)).toBeDefined();
    await server.close();
    squatter.close();
  },
);

test('locks of processes that have ended are passed over, and removed', async () => {
  const dataDir = makeDataDir();
  await (await startIn(dataDir)).close();
  const ended = startProcess('true', []);
  await ended.ended;
  const left = [`postgres.start-${ended.pid}-1-a`, `postgres.start-${process.pid}-1-b`]; // this process is younger
  for (const name of left) writeFileSync(path.join(dataDir, name), '');
  await (await startIn(dataDir)).close();
  expect(left.filter((name) => existsSync(path.join(dataDir, name)))).toEqual([]);
});
