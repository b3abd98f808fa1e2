/** Copies in the restore area that were changed by hand: their files count as on disk only while these are there. */
import { randomBytes } from 'node:crypto';
import { appendFileSync, existsSync, readFileSync, renameSync, rmSync } from 'node:fs';
import path from 'node:path';
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { lookForChanged } from '../../src/engine/disk/changed.js';
import { removeUnheld } from '../../src/engine/disk/removal.js';
import { examine } from '../../src/engine/doctor/doctor.js';
import { importRows } from '../../src/operations/catalogue/import.js';
import { verifyAgain } from '../../src/operations/catalogue/verifications.js';
import { holdDisk } from '../../src/operations/disks/failing.js';
import { letGo, readUnheld } from '../../src/operations/disks/removals.js';
import type { Finding } from '../../src/operations/doctor/findings.js';
import { resume } from '../../src/operations/suspensions.js';
import { createMemoryBackend } from '../../src/tape/memory.js';
import type { TestApp } from '../support/app.js';
import { startIdleApp, withEngine } from '../support/engine-by-hand.js';
import { findIllegalMoves, readDisks, readMoves, readRestored, readStage } from '../support/engine-watch.js';
import { addTaped, buildRow, checksumOf, putOnTape } from '../support/factories.js';
import { askData } from '../support/graphql.js';
import { cancel } from '../support/mutations.js';
import { runCli } from '../support/process.js';
import { viewRequest, waitForState } from '../support/request-view.js';
import { makeRequest } from '../support/rest.js';
import { waitFor } from '../support/wait.js';

let app: TestApp;
const backend = createMemoryBackend();
let volumes = 0;

beforeAll(async () => {
  app = await startIdleApp();
});
afterEach(() => {
  backend.log.length = 0;
});
afterAll(async () => {
  expect(await findIllegalMoves(app)).toEqual([]);
  await app.close();
});

const place = (file: string) => path.join(app.restoreDir, file);
const ask = (file: string) => makeRequest(app, { quota: 'alice', files: [file] });
const stateOf = async (id: number) => (await viewRequest(app, id)).state;

/** Restores a file, has its copy changed by hand, and ends its request. @returns the bytes on tape */
async function changeByHand(file: string): Promise<Buffer> {
  const contents = await addTaped(app.ctx, backend, [{ path: file, volume: `CHANGED${++volumes}` }]);
  const id = await ask(file);
  await withEngine(app, backend, async () => {
    await waitForState(app, id, 'COMPLETED');
    appendFileSync(place(file), 'by hand');
    await cancel(app, id);
    await waitFor('the file to be UNVERIFIED', async () => (await readStage(app, file)) === 'U');
  });
  backend.log.length = 0;
  return Buffer.from(contents.get(file) ?? []);
}

test('an import that says of a file that only its volume is another one leaves its changed copy where it is', async () => {
  const file = '/changed/moved';
  const bytes = await changeByHand(file);
  const id = await ask(file);
  await withEngine(app, backend, () => waitForState(app, id, 'COMPLETED'));
  putOnTape(backend, { volume: 'NEWER', position: 7n, bytes });
  for (const stage of ['ONTAPE', 'RESTORED'] as const) {
    await importRows(app.ctx, [
      buildRow({ path: file, size: BigInt(bytes.length), stage, volume: 'NEWER', position: 7n, checksum: undefined }),
    ]);
    expect([await readStage(app, file), await stateOf(id)]).toEqual(['U', 'COMPLETED']);
  }
  await cancel(app, id);
});

async function findFaults(repair: boolean): Promise<Finding[]> {
  const findings: Finding[] = [];
  await examine(app.ctx, { repair, checksums: false }, (finding) => findings.push(finding));
  return findings;
}

test('what waits for a look at a changed copy says so, and why nobody looks where its disk fails', async () => {
  const file = '/changed/why';
  await changeByHand(file);
  const id = await ask(file);
  const words = 'its copy in the restore area was changed by hand, and no engine has looked yet whether it is there';
  const query = `{ request(id: ${id}) { waiting { files end { planned } parts { edges { node { reason files explanation } } } } } }`;
  const told = (explanation: string) => ({
    request: {
      waiting: { files: 1, end: null, parts: { edges: [{ node: { reason: 'CHANGED_COPY', files: 1, explanation } }] } },
    },
  });
  expect(await askData(app, query)).toEqual(told(words));
  const printed = await runCli(['plan', String(id)], { env: { TAPEGATE_URL: app.url, TAPEGATE_TOKEN: app.token } });
  expect(printed.stdout).toContain(words);
  await holdDisk(app.ctx, app.restoreDir, 'the cable is out');
  expect(await askData(app, query)).toEqual(told(`${words}: ${app.restoreDir} fails: the cable is out`));
  await resume(app.ctx, { kind: 'DISK', name: app.restoreDir });
  await withEngine(app, backend, () => waitForState(app, id, 'COMPLETED'));
  expect(await askData(app, query)).toEqual({ request: { waiting: null } });
  await cancel(app, id);
});

test('a changed copy satisfies a request as long as it is there, and without it the file is recalled', async () => {
  const file = '/changed/there';
  const bytes = await changeByHand(file);
  const first = await ask(file);
  expect(await stateOf(first)).toBe('QUEUED'); // nobody has looked yet
  await withEngine(app, backend, async () => {
    await waitForState(app, first, 'COMPLETED');
    expect([await readStage(app, file), backend.log]).toEqual(['U', []]);
    await cancel(app, first);
    rmSync(place(file));
    for (const _ of ['first', 'second']) {
      const id = await ask(file);
      await waitForState(app, id, 'COMPLETED');
      expect(readRestored(app, file)).toEqual(bytes);
    }
  });
  expect((await readMoves(app, file)).map(({ move }) => move)).toEqual(['TA', 'AR', 'RU', 'UT', 'TA', 'AR']);
});

/** Restores a file, and ends its request: its copy is to be removed, which nobody comes to do. */
async function letGoOnly(file: string): Promise<void> {
  await addTaped(app.ctx, backend, [{ path: file, volume: `CHANGED${++volumes}` }]);
  const id = await ask(file);
  await withEngine(app, backend, () => waitForState(app, id, 'COMPLETED'));
  await cancel(app, id);
  await letGo(app.ctx, {
    unchanged: (await readUnheld(app.ctx, { requestId: id, after: 0, limit: 1 })).copies,
    changed: [],
  });
  expect(await readStage(app, file)).toBe('T');
  backend.log.length = 0;
}

test('the folders of a changed copy that has gone go with it, though its file may be restored elsewhere', async () => {
  const file = '/changed/emptied/by/hand';
  await changeByHand(file);
  const id = await ask(file);
  rmSync(place(file));
  expect(existsSync(place('/changed/emptied/by'))).toBe(true);
  await lookForChanged(app.ctx, new AbortController().signal);
  expect([await readStage(app, file), existsSync(place('/changed/emptied'))]).toEqual(['T', false]);
  await cancel(app, id);
});

test.each([
  ['after', false],
  ['before', true],
])(
  'a copy that is changed between its letting go and its removal is kept, and serves who asks %s',
  async (_when, isAwaited) => {
    const file = `/changed/late/${isAwaited}`;
    await letGoOnly(file);
    appendFileSync(place(file), 'by hand');
    const bytes = readFileSync(place(file));
    const early = isAwaited ? await ask(file) : undefined;
    expect(await removeUnheld(app.ctx, new AbortController().signal)).toBe(0);
    expect([await readStage(app, file), readRestored(app, file)]).toEqual(['U', bytes]);
    const id = early ?? (await ask(file));
    await withEngine(app, backend, () => waitForState(app, id, 'COMPLETED'));
    expect([readRestored(app, file), backend.log]).toEqual([bytes, []]);
    expect((await readMoves(app, file)).map(({ move }) => move)).toEqual(['TA', 'AR', 'RT', 'TU']);
    const { rowCount } = await app.ctx.db.pool.query('SELECT FROM tape_file WHERE path = $1 AND disk_id IS NULL', [
      file,
    ]);
    expect(rowCount).toBe(1);
  },
);

test('a copy that is changed while it leaves, and is of another version than its file, stands for nothing', async () => {
  const file = '/changed/late/stale';
  await letGoOnly(file);
  appendFileSync(place(file), 'by hand');
  const checksum = checksumOf('other bytes');
  await importRows(app.ctx, [buildRow({ path: file, size: 1000n, volume: `CHANGED${volumes}`, checksum })]);
  expect(await removeUnheld(app.ctx, new AbortController().signal)).toBe(0);
  expect([await readStage(app, file), existsSync(place(file))]).toEqual(['T', true]);
  const faults = await findFaults(false);
  expect(faults.map(({ kind, thing }) => [kind, thing])).toContainEqual(['orphan-copy', place(file)]);
  rmSync(place(file));
});

test('while the disk of a changed copy is away nobody can tell, and the request waits', async () => {
  const file = '/changed/away';
  await changeByHand(file);
  const id = await ask(file);
  const { lookForChanged } = await import('../../src/engine/disk/changed.js');
  const look = () => lookForChanged(app.ctx, new AbortController().signal);
  renameSync(app.restoreDir, `${app.restoreDir}-away`);
  await look();
  expect([await readStage(app, file), await stateOf(id)]).toEqual(['U', 'QUEUED']);
  renameSync(`${app.restoreDir}-away`, app.restoreDir);
  await resume(app.ctx, { kind: 'DISK', name: app.restoreDir }); // held since then, with the reason
  await look();
  expect([await readStage(app, file), await stateOf(id)]).toEqual(['U', 'COMPLETED']);
  await cancel(app, id);
});

test('the doctor finds a changed copy that has gone, and has the file recalled for whoever holds it', async () => {
  const file = '/changed/doctor';
  const bytes = await changeByHand(file);
  const { used } = await readDisks(app);
  const id = await ask(file);
  await withEngine(app, backend, () => waitForState(app, id, 'COMPLETED'));
  expect(await findFaults(false)).toEqual([]);
  rmSync(place(file));
  const fault = {
    kind: 'copy-missing',
    thing: place(file),
    expected: 'a copy that was changed by hand, its file being UNVERIFIED',
    found: 'nothing',
  };
  expect(await findFaults(false)).toEqual([{ ...fault, isRepaired: false }]);
  expect([await readStage(app, file), await stateOf(id)]).toEqual(['U', 'COMPLETED']);
  expect(await findFaults(true)).toEqual([{ ...fault, isRepaired: true }]);
  expect(await findFaults(true)).toEqual([]);
  expect(await readStage(app, file)).toBe('T');
  await withEngine(app, backend, () => waitForState(app, id, 'COMPLETED'));
  expect(readRestored(app, file)).toEqual(bytes);
  expect(await readDisks(app)).toEqual({ used: used + 1000n, reserved: 0n });
});

test('a file whose copy was changed is not confirmed by reading its tape copy', async () => {
  const file = '/changed/confirmed';
  await changeByHand(file);
  await app.ctx.db.pool.query('UPDATE tape_file SET verified = NULL WHERE path = $1', [file]);
  expect(await verifyAgain(app.ctx, { match: file })).toBe(0);
});

test('an import that says that a file is at its primary place satisfies who waits for a look at the changed copy', async () => {
  const file = '/changed/imported';
  await changeByHand(file);
  const id = await ask(file);
  await importRows(app.ctx, [buildRow({ path: file, size: 1000n, stage: 'ONDISK', volume: `CHANGED${volumes}` })]);
  expect([await readStage(app, file), await stateOf(id)]).toEqual(['D', 'COMPLETED']);
  expect(existsSync(place(file))).toBe(true);
});

test.each([
  ['has other bytes', null, { hasChecksum: true, position: 1n }],
  ['lies elsewhere, and has no checksum', 'UNVERIFIED', { hasChecksum: false, position: 2n }],
] as const)(
  'a copy changed by hand satisfies nobody any more once an import says that its file %s',
  async (what, stage, now) => {
    const file = `/changed/renewed/${what}`;
    await changeByHand(file);
    const first = await ask(file);
    await withEngine(app, backend, () => waitForState(app, first, 'COMPLETED'));
    const kept = readFileSync(place(file));
    const { position, hasChecksum } = now;
    const [bytes, volume] = [randomBytes(1000), `CHANGED${volumes}`];
    putOnTape(backend, { volume, position, bytes });
    const checksum = hasChecksum ? checksumOf(bytes) : null;
    const row = buildRow({ path: file, size: 1000n, volume, position, checksum });
    await importRows(app.ctx, [{ ...row, stage }]);
    expect([await readStage(app, file), (await viewRequest(app, first)).holds[0]?.state]).toEqual(['T', 'WAITING']);
    const second = await ask(file);
    await withEngine(app, backend, async () => {
      const { holds } = await waitForState(app, second, 'PARTIAL'); // it is somebody's own
      expect(holds[0]?.errorClass).toBe('POLICY');
      expect(readFileSync(place(file))).toEqual(kept);
      rmSync(place(file));
      const third = await ask(file);
      for (const id of [first, second, third]) await waitForState(app, id, 'COMPLETED');
    });
    expect(readRestored(app, file)).toEqual(bytes);
    expect((await readMoves(app, file)).slice(0, 4).map(({ move }) => move)).toEqual(['TA', 'AR', 'RU', 'UT']);
    const { rowCount } = await app.ctx.db.pool.query(
      'SELECT FROM verification w JOIN tape_file f ON f.id = w.file_id WHERE f.path = $1',
      [file],
    );
    expect(rowCount).toBe(0);
  },
);
