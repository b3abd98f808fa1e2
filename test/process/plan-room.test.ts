/** What is told of a request's end while no restore disk has room for it. */
import { afterAll, beforeAll, expect, test } from 'vitest';
import { setDisk } from '../../src/operations/disks/disks.js';
import { createMemoryBackend } from '../../src/tape/memory.js';
import { startApp, type TestApp } from '../support/app.js';
import { addQuota, addTaped } from '../support/factories.js';
import { askData } from '../support/graphql.js';
import { cleanUp, runCli } from '../support/process.js';
import { waitForState } from '../support/request-view.js';
import { makeRequest } from '../support/rest.js';
import { createGate, waitFor } from '../support/wait.js';

let app: TestApp;
const backend = createMemoryBackend();

beforeAll(async () => {
  app = await startApp({ backend });
  await addQuota(app.ctx, 'ann', 1_000_000n);
  await setDisk(app.ctx, { mountpoint: app.restoreDir, size: 1500n });
  await addTaped(app.ctx, backend, [
    { path: '/room/a', size: 1000 },
    { path: '/room/b', size: 1000 },
  ]);
});
afterAll(async () => {
  await cleanUp();
  await app.close();
});

const unknown =
  'when it will be done cannot be told: something is out of service, no restore disk has room, or no engine works';

test('an estimate gives no end for what the restore disks have no room for, and says so', async () => {
  const estimate = async (pattern: string) => {
    const query = `{ estimateRequest(input: { quota: "ann", pattern: "${pattern}" }) {
      ... on Estimate { hasRoom end { planned } } } }`;
    return (await askData<{ estimateRequest: { hasRoom: boolean; end: object | null } }>(app, query)).estimateRequest;
  };
  expect(await estimate('/room/')).toEqual({ hasRoom: false, end: null });
  expect(await estimate('/room/a')).toEqual({ hasRoom: true, end: { planned: expect.any(String) } });
  const env = { TAPEGATE_URL: app.url, TAPEGATE_TOKEN: app.token };
  const { stdout } = await runCli(['request', '--quota', 'ann', '--pattern', '/room/', '--dry-run'], { env });
  expect(stdout).toContain('\nno room     the restore disks have less left: files wait until others leave\n');
  expect(stdout).toContain(`\nend         ${unknown}\n`);
});

test('what has its room already is not counted against the room that is left', async () => {
  const [begun, gate] = [createGate(), createGate()];
  const { onRead } = backend;
  backend.onRead = async (_volume, _position, bytes) => {
    begun.open();
    await gate.opened;
    return bytes;
  };
  const id = await makeRequest(app, { quota: 'ann', patterns: '/room/a' });
  await begun.opened;
  const query = `{ estimateRequest(input: { quota: "ann", pattern: "/room/a" }) {
    ... on Estimate { hasRoom bytesToRecall end { planned } } } }`;
  expect(await askData(app, query)).toEqual({
    estimateRequest: { hasRoom: true, bytesToRecall: '1000', end: { planned: expect.any(String) } },
  });
  backend.onRead = onRead;
  gate.open();
  await waitForState(app, id, 'COMPLETED');
});

test('a request that waits for room has no end by the plan', async () => {
  const id = await makeRequest(app, { quota: 'ann', patterns: '/room/' });
  const waiting = await waitFor('a file to wait for room', async () => {
    const query = `{ request(id: ${id}) { waiting { end { planned } parts { edges { node { reason files } } } } } }`;
    type View = { end: object | null; parts: { edges: { node: { reason: string; files: number } }[] } };
    const { request } = await askData<{ request: { waiting: View | null } }>(app, query);
    const parts = request.waiting?.parts.edges.map(({ node }) => node) ?? [];
    return parts.length === 1 && parts[0]?.reason === 'SPACE' ? (request.waiting ?? undefined) : undefined;
  });
  expect(waiting.end).toBeNull();
  const { stdout } = await runCli(['plan', String(id)], { env: { TAPEGATE_URL: app.url, TAPEGATE_TOKEN: app.token } });
  expect(stdout).toContain(`request ${id}: 1 file waits, 1.00 kB; ${unknown}\n`);
});
