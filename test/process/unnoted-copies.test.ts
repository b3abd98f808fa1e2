/** Copies that were changed by hand and of which nobody has noted the disk, as programs from before have left them. */
import { appendFileSync, existsSync, mkdirSync, renameSync, rmSync } from 'node:fs';
import path from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { lookForUnnoted } from '../../src/engine/disk/changed.js';
import { examine } from '../../src/engine/doctor/doctor.js';
import { setDisk } from '../../src/operations/disks/disks.js';
import type { Finding } from '../../src/operations/doctor/findings.js';
import { resume } from '../../src/operations/suspensions.js';
import { createMemoryBackend } from '../../src/tape/memory.js';
import type { TestApp } from '../support/app.js';
import { startIdleApp, withEngine } from '../support/engine-by-hand.js';
import { findIllegalMoves, readMoves, readStage } from '../support/engine-watch.js';
import { addTaped } from '../support/factories.js';
import { cancel } from '../support/mutations.js';
import { viewRequest, waitForState } from '../support/request-view.js';
import { makeRequest } from '../support/rest.js';
import { waitFor } from '../support/wait.js';

let app: TestApp;
let disks: string[] = [];
const backend = createMemoryBackend();
let volumes = 0;

beforeAll(async () => {
  app = await startIdleApp();
  const second = `${app.restoreDir}-second`;
  mkdirSync(second);
  await setDisk(app.ctx, { mountpoint: second, size: 10n ** 9n });
  disks = [app.restoreDir, second];
});
afterAll(async () => {
  expect(await findIllegalMoves(app)).toEqual([]);
  await app.close();
});

const ask = (file: string) => makeRequest(app, { quota: 'alice', files: [file] });
const stateOf = async (id: number) => (await viewRequest(app, id)).state;
const look = () => lookForUnnoted(app.ctx, new AbortController().signal);
const findCopy = (file: string) => disks.map((disk) => path.join(disk, file)).find((place) => existsSync(place)) ?? '';

/** Restores a file, has its copy changed by hand, ends its request, and forgets on which disk the copy is. */
async function leaveUnnoted(file: string): Promise<void> {
  await addTaped(app.ctx, backend, [{ path: file, volume: `UNNOTED${++volumes}` }]);
  const id = await ask(file);
  await withEngine(app, backend, async () => {
    await waitForState(app, id, 'COMPLETED');
    appendFileSync(findCopy(file), 'by hand');
    await cancel(app, id);
    await waitFor('the file to be UNVERIFIED', async () => (await readStage(app, file)) === 'U');
  });
  await forget(file);
}

async function forget(file: string): Promise<void> {
  await app.ctx.db.pool.query('UPDATE tape_file SET changed_disk_id = NULL WHERE path = $1', [file]);
}

async function findFaults(repair: boolean): Promise<Finding[]> {
  const findings: Finding[] = [];
  await examine(app.ctx, { repair, checksums: false }, (finding) => findings.push(finding));
  return findings;
}

async function readNoted(file: string): Promise<string | undefined> {
  const { rows } = await app.ctx.db.pool.query<{ mountpoint: string }>(
    'SELECT k.mountpoint FROM tape_file f JOIN restore_disk k ON k.id = f.changed_disk_id WHERE f.path = $1',
    [file],
  );
  return rows[0]?.mountpoint;
}

test('an engine notes on which disk a copy is that was changed by hand', async () => {
  const file = '/unnoted/there';
  await leaveUnnoted(file);
  await withEngine(app, backend, async () => {
    await waitFor('the note', async () => (await readNoted(file)) !== undefined);
  });
  expect(path.join((await readNoted(file)) ?? '', file)).toBe(findCopy(file));
  expect(await readStage(app, file)).toBe('U');
  rmSync(findCopy(file));
  const id = await ask(file);
  await withEngine(app, backend, () => waitForState(app, id, 'COMPLETED'));
  expect(existsSync(findCopy(file))).toBe(true);
});

test('a file whose changed copy is on no disk is recalled, also for who was told that it is on disk', async () => {
  const file = '/unnoted/gone';
  await leaveUnnoted(file);
  rmSync(findCopy(file));
  const id = await ask(file);
  expect(await stateOf(id)).toBe('COMPLETED'); // nobody has looked yet
  await withEngine(app, backend, async () => {
    await waitFor('the file to be RESTORED', async () => (await readStage(app, file)) === 'R');
    await waitForState(app, id, 'COMPLETED');
  });
  expect(existsSync(findCopy(file))).toBe(true);
  expect((await readMoves(app, file)).map(({ move }) => move)).toEqual(['TA', 'AR', 'RU', 'UT', 'TA', 'AR']);
});

test('while a disk is away nobody says that a copy is on none', async () => {
  const file = '/unnoted/away';
  await leaveUnnoted(file);
  const home = disks.find((disk) => existsSync(path.join(disk, file))) ?? '';
  renameSync(home, `${home}-away`);
  await look();
  await look(); // it is held by now, and not looked at
  expect([await readStage(app, file), await readNoted(file)]).toEqual(['U', undefined]);
  renameSync(`${home}-away`, home);
  await resume(app.ctx, { kind: 'DISK', name: home });
  await look();
  expect([await readStage(app, file), await readNoted(file)]).toEqual(['U', home]);
});

test('the doctor finds a changed copy of which no disk is noted, and looks on all of them', async () => {
  const files = ['/unnoted/doctor/there', '/unnoted/doctor/gone'];
  for (const file of files) await leaveUnnoted(file);
  for (const file of files) await forget(file); // the engine that restored the second one has looked for the first
  rmSync(findCopy('/unnoted/doctor/gone'));
  const fault = { kind: 'copy-unnoted', expected: 'the disk of its copy, which was changed by hand', found: 'no disk' };
  const faults = (isRepaired: boolean) => files.map((thing) => ({ ...fault, thing, isRepaired }));
  expect(await findFaults(false)).toEqual(faults(false));
  expect(await findFaults(true)).toEqual(faults(true));
  expect(await findFaults(true)).toEqual([]);
  expect(await Promise.all(files.map((file) => readStage(app, file)))).toEqual(['U', 'T']);
});

test('what an import has left UNVERIFIED is at its primary place, and is left alone', async () => {
  const file = '/unnoted/primary';
  await addTaped(app.ctx, backend, [{ path: file, volume: 'PRIMARY', stage: 'UNVERIFIED' }]);
  await look();
  expect([await readStage(app, file), await readNoted(file), await stateOf(await ask(file))]).toEqual([
    'U',
    undefined,
    'COMPLETED',
  ]);
});
