/** What is moved aside to be removed, and is not the copy after all: it is given back, or stays. */
import { existsSync, readFileSync, renameSync, statSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { pino } from 'pino';
import { afterAll, afterEach, beforeAll, expect, test, vi } from 'vitest';
import { removeUnheld } from '../../src/engine/disk/removal.js';
import { letGo, readUnheld } from '../../src/operations/disks/removals.js';
import { createMemoryBackend } from '../../src/tape/memory.js';
import type { TestApp } from '../support/app.js';
import { startIdleApp, withEngine } from '../support/engine-by-hand.js';
import { listTree, readStage } from '../support/engine-watch.js';
import { addTaped } from '../support/factories.js';
import { cancel } from '../support/mutations.js';
import { waitForState } from '../support/request-view.js';
import { makeRequest } from '../support/rest.js';

/** What happens just before a file is moved, and what becomes of a link. */
const disk = vi.hoisted(() => ({ beforeRename: (): void => {}, link: undefined as (() => void) | undefined }));

vi.mock('node:fs', async (original) => {
  const real = await original<typeof import('node:fs')>();
  return {
    ...real,
    renameSync: (from: string, to: string) => {
      disk.beforeRename();
      real.renameSync(from, to);
    },
    linkSync: (from: string, to: string) => {
      disk.link?.();
      real.linkSync(from, to);
    },
  };
});

let app: TestApp;
const backend = createMemoryBackend();
let errors: string[] = [];

beforeAll(async () => {
  app = await startIdleApp();
  app.ctx.log = pino({ level: 'error' }, { write: (line: string) => errors.push(line) });
});
afterEach(() => {
  disk.beforeRename = () => {};
  disk.link = undefined;
  errors = [];
});
afterAll(() => app.close());

const place = (file: string) => path.join(app.restoreDir, file);
const removeAll = () => removeUnheld(app.ctx, new AbortController().signal);
const noLinks = () => {
  throw Object.assign(new Error('EPERM: no links here'), { code: 'EPERM' });
};

let volumes = 0;

/** Restores a file and lets its copy go. @returns where that is moved to be removed */
async function letGoOf(file: string): Promise<string> {
  await addTaped(app.ctx, backend, [{ path: file, volume: `ASIDE${++volumes}` }]);
  const id = await makeRequest(app, { quota: 'alice', files: [file] });
  await withEngine(app, backend, () => waitForState(app, id, 'COMPLETED'));
  await cancel(app, id);
  await letGo(app.ctx, {
    unchanged: (await readUnheld(app.ctx, { requestId: id, after: 0, limit: 1 })).copies,
    changed: [],
  });
  const { ino, mtimeNs } = statSync(place(file), { bigint: true });
  return path.join(path.dirname(place(file)), `.tapegate-removed-${ino}-${mtimeNs}.part`);
}

/** Somebody's own file takes the place once, while the process stands still. */
function swapBeforeRename(file: string): void {
  disk.beforeRename = () => {
    disk.beforeRename = () => {};
    renameSync(place(file), path.join(app.dataDir, `swapped-${volumes}`));
    writeFileSync(place(file), 'my own');
  };
}

test.each([
  ['with links', undefined],
  ['without links', noLinks],
])("on a file system %s, somebody's file that was moved aside is given back", async (what, link) => {
  const file = `/aside/back ${what}/file`;
  await letGoOf(file);
  swapBeforeRename(file);
  disk.link = link;
  await removeAll();
  expect([readFileSync(place(file), 'utf8'), listTree(path.dirname(place(file)))]).toEqual(['my own', ['file']]);
  await removeAll();
  expect([readFileSync(place(file), 'utf8'), await readStage(app, file)]).toEqual(['my own', 'U']);
});

test.each([
  ['with links', () => {}],
  ['without links', noLinks],
])("on a file system %s, somebody's file whose place is taken by now stays aside, and is told", async (what, link) => {
  const file = `/aside/taken/${what}`;
  const aside = await letGoOf(file);
  swapBeforeRename(file);
  disk.link = () => {
    writeFileSync(place(file), 'a third one');
    link();
  };
  await removeAll();
  expect([readFileSync(aside, 'utf8'), readFileSync(place(file), 'utf8')]).toEqual(['my own', 'a third one']);
  expect(errors.join()).toContain('was moved out of its place by mistake, and cannot be put back');
  disk.link = undefined;
  await removeAll();
  expect([readFileSync(aside, 'utf8'), readFileSync(place(file), 'utf8')]).toEqual(['my own', 'a third one']);
});

test('a copy that a process moved aside before it was killed goes', async () => {
  const aside = await letGoOf('/aside/killed/copy');
  renameSync(place('/aside/killed/copy'), aside);
  expect(await removeAll()).toBe(1);
  expect(existsSync(place('/aside/killed'))).toBe(false);
});

test("somebody's file that a process moved aside before it was killed is given back", async () => {
  const aside = await letGoOf('/aside/killed/other');
  renameSync(place('/aside/killed/other'), path.join(app.dataDir, 'killed'));
  writeFileSync(aside, 'my own');
  expect(await removeAll()).toBe(0);
  expect(readFileSync(place('/aside/killed/other'), 'utf8')).toBe('my own');
  expect(listTree(place('/aside/killed'))).toEqual(['other']);
});
