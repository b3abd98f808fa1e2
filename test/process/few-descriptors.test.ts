/** A server whose processes may open few files, and streams that take as many descriptors as they get. */
import { once } from 'node:events';
import http from 'node:http';
import path from 'node:path';
import { afterAll, expect, test } from 'vitest';
import { listTree } from '../support/engine-watch.js';
import { askData, type Edges } from '../support/graphql.js';
import { cleanUp, makeDataDir, readServerLog, startServer, stop } from '../support/process.js';
import { makeRequest } from '../support/rest.js';
import { DEMO, hashTree, hashVolumes, isReady, waitForEnd } from '../support/server.js';
import { waitFor } from '../support/wait.js';

const DESCRIPTORS = 320;
/** Number of connections that are opened at the same time. */
const AT_ONCE = 16;

const open: http.IncomingMessage[] = [];
afterAll(async () => {
  for (const answer of open) answer.destroy();
  await cleanUp();
});

/** Opens a stream on its own connection, which stays open. Returns false if the gateway closes the connection. */
async function openStream({ url }: { url: string }, localAddress: string): Promise<boolean> {
  const { hostname, port } = new URL(url);
  const headers = { 'Content-Type': 'application/json', Accept: 'text/event-stream' };
  const target = { hostname, port, path: '/graphql/stream', method: 'POST', headers, localAddress };
  const request = http.request({ ...target, agent: false });
  request.end(JSON.stringify({ query: 'subscription { stageChanges(match: "/nowhere/") { path } }' }));
  const answer = await once(request, 'response').then(
    ([response]) => response as http.IncomingMessage,
    () => undefined,
  );
  if (!answer) return false;
  expect(answer.statusCode).toBe(200);
  answer.on('error', () => {});
  open.push(answer.resume());
  return true;
}

/** Opens streams. @returns the number of connections that the gateway closed */
async function openStreams(server: { url: string }, count: number, address: string): Promise<number> {
  let closed = 0;
  for (let n = 0; n < count; n += AT_ONCE) {
    const some = Array.from({ length: Math.min(AT_ONCE, count - n) }, () => openStream(server, address));
    closed += (await Promise.all(some)).filter((isOpen) => !isOpen).length;
  }
  return closed;
}

interface Tries {
  request: { filesFailed: number; files: Edges<{ state: string; attempts: number | null; lastError: string | null }> };
}

test('streams take no descriptor that recalls, the database or health need, and one address leaves some for others', {
  timeout: 180_000,
}, async () => {
  const dataDir = makeDataDir();
  const server = await startServer('start', { env: { DATA_DIR: dataDir }, descriptors: DESCRIPTORS });
  const closed = await openStreams(server, DESCRIPTORS, '127.0.0.2');
  expect(open.length).toBeGreaterThan(50);
  expect(closed).toBe(DESCRIPTORS - open.length);
  expect(await isReady(server)).toBe(true);
  const first = await makeRequest(server, { quota: 'alice', patterns: DEMO });
  await waitForEnd(server, first);
  const restore = path.join(dataDir, 'restore');
  const expected = { ...(await hashVolumes(server, dataDir, DEMO)), ...(await hashVolumes(server, dataDir, '/2023/')) };
  expect(hashTree(restore)).toEqual(await hashVolumes(server, dataDir, DEMO));

  const second = await makeRequest(server, { quota: 'alice', patterns: '/2023/' });
  let address = 3;
  while ((await openStreams(server, AT_ONCE, `127.0.0.${address}`)) === 0) address++;
  open.pop()?.destroy(); // frees a descriptor for other callers
  await waitFor('health to be answered', () => isReady(server).catch(() => false));
  await waitFor('the files, and no partial one', async () => {
    const names = listTree(restore).map((name) => `/${name}`);
    return Object.keys(expected).every((name) => names.includes(name)) && !names.some((name) => name.endsWith('.part'));
  });
  expect(hashTree(restore)).toEqual(expected);

  for (const answer of open.splice(0)) answer.destroy();
  await waitFor('connections to be free', async () => (await openStreams(server, 1, '127.0.0.1')) === 0);
  await waitForEnd(server, second);
  for (const id of [first, second]) {
    const query = `{ request(requestId: ${id}) { filesFailed files(first: 100) { edges { node { state attempts lastError } } } } }`;
    const { request } = await askData<Tries>(server, query);
    expect(request.filesFailed).toBe(0);
    for (const { node } of request.files.edges) expect(node).toMatchObject({ state: 'ON_DISK', lastError: null });
  }
  for (const answer of open.splice(0)) answer.destroy();
  const { code, stderr } = await stop(server);
  expect(code).toBe(0);
  expect(stderr).not.toMatch(/EMFILE|too many open files/);
  expect(readServerLog(dataDir)).not.toMatch(/too many open files|out of file descriptors/i);
});
