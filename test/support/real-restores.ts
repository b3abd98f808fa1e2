/**
 * The suite of restores through a staging kind as sites have it: from the request to the file on disk, by an engine, with what goes wrong
 * between it and the system behind.
 */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { findIllegalMoves, listTree, readDisks, readRestored } from './engine-watch.js';
import { cancel } from './mutations.js';
import type { RealKind } from './real-kinds.js';
import { openSite, type Site } from './restores.js';
import { readStates } from './staging.js';
import type { StagingTraits } from './staging-library.js';
import { readTries } from './suspend.js';
import { waitFor } from './wait.js';

export interface RealTraits extends StagingTraits {
  /** Reads begin at any byte. */
  offsets: boolean;
}

const MIB = 1024 * 1024;

export function describeRestores(name: string, open: () => Promise<RealKind>, can: RealTraits): void {
  describe(`restores through ${name}`, () => {
    let site: Site | undefined;
    const opened = () => {
      if (!site) throw new Error('the site is not open');
      return site;
    };
    beforeAll(async () => {
      site = await openSite(await open());
    });
    afterAll(async () => {
      await expectPeace(opened(), can);
      await opened().close();
    });
    describeWell(opened, can);
    if (!can.isShort) {
      describeCalls(opened, can);
      describeReads(opened, can);
    }
    describeLettingGo(opened, can); // last, because time goes on by days
  });
}

const pathsIn = (folder: string, count: number) => Array.from({ length: count }, (_, n) => `/${folder}/${n}.nc`);
const toFiles = (paths: readonly string[], size = 1000) => paths.map((path) => ({ path, size }));

async function expectPeace({ app, kind }: Site, can: StagingTraits): Promise<void> {
  const states = Object.values(await readStates(app.ctx));
  expect(states.filter((state) => can.release || state !== 'KEPT')).toEqual([]);
  if (can.release) expect(kind.countDemands()).toBe(0);
  expect(await findIllegalMoves(app)).toEqual([]);
  expect(listTree(app.restoreDir).filter((name) => name.includes('.part'))).toEqual([]);
  expect((await readDisks(app)).reserved).toBe(0n);
}

/** Each is in its place with its bytes, and was not tried twice. */
async function expectRestored(site: Site, right: ReadonlyMap<string, Buffer>): Promise<void> {
  for (const [path, bytes] of right) expect([path, readRestored(site.app, path)?.equals(bytes)]).toEqual([path, true]);
}

/** Nobody needs these any more, and the system knows. */
async function untilLetGo(site: Site, paths: readonly string[], can: StagingTraits): Promise<void> {
  const left = can.release ? undefined : 'KEPT';
  await site.untilStaging('them to be let go', (states) => paths.every((path) => states[path] === left));
  const staged = await Promise.all(paths.map((path) => site.kind.bench.isStaged(path)));
  if (can.release) expect(staged).not.toContain(true);
}

function describeWell(opened: () => Site, can: RealTraits): void {
  test('files are asked for together, come, are put in place, and are let go', async () => {
    const site = opened();
    const odd = [
      '/well/with spaces  and more',
      '/well/Grüße/日本語',
      `/well/'quotes" & $(exit 1)`,
      '/well/100%41+b#c?d',
    ];
    const paths = [...pathsIn('well', 36), ...odd];
    const right = await site.put(toFiles(paths));
    const id = await site.request('/well/');
    const view = await site.bring(id, 'COMPLETED', paths);
    expect(view.filesOnDisk).toBe(40);
    await expectRestored(site, right);
    await untilLetGo(site, paths, can);
    if (can.release || !can.until) return;
    const kept = await site.readKept();
    expect(kept.map(({ path }) => path).sort()).toEqual([...paths].sort());
    for (const { until } of kept) expect(Date.parse(until ?? '')).toBeGreaterThan(Date.now());
  });

  test('a file that is not there fails by itself, and those with it come', async () => {
    const site = opened();
    const paths = pathsIn('partly', 3);
    const right = await site.put(toFiles(paths));
    await site.kind.bench.spoil('/partly/1.nc', 'lost');
    right.delete('/partly/1.nc');
    const view = await site.bring(await site.request('/partly/'), 'PARTIAL', paths);
    expect(view.holds.map(({ state, errorClass }) => [state, errorClass])).toEqual([
      ['ON_DISK', null],
      ['FAILED', 'PERMANENT'],
      ['ON_DISK', null],
    ]);
    await expectRestored(site, right);
    await untilLetGo(site, [...right.keys()], can);
  });
}

function describeCalls(opened: () => Site, can: RealTraits): void {
  test.each(['stage', 'poll', ...(can.release ? (['release'] as const) : [])] as const)(
    'a %s that arrives, and whose answer does not, is made again',
    async (call) => {
      const site = opened();
      const { bench } = site.kind;
      const paths = pathsIn(`lost-${call}`, 3);
      const right = await site.put(toFiles(paths));
      await bench.lose(call);
      const id = await site.request(`/lost-${call}/`);
      const { holds } = await site.bring(id, 'COMPLETED', paths);
      expect(holds.map(({ error }) => error)).toEqual([null, null, null]);
      await expectRestored(site, right);
      if (call !== 'stage' || !can.release) return await untilLetGo(site, paths, can);
      await site.untilStaging('all to be let go', (states) => Object.keys(states).length === 0);
      // a demand of which nobody knows the name holds them: the system's own lifetime ends it
      expect(site.kind.countDemands()).toBe(1);
      await bench.forget();
      for (const path of paths) await bench.evict(path);
    },
  );

  test('a system that is busy is asked again when it has said', async () => {
    const site = opened();
    const paths = pathsIn('busy', 3);
    const right = await site.put(toFiles(paths));
    await site.kind.bench.busy(20);
    const since = site.clock.now();
    await site.bring(await site.request('/busy/'), 'COMPLETED', paths);
    expect(Date.parse(`${site.clock.now()}Z`) - Date.parse(`${since}Z`)).toBeGreaterThanOrEqual(20_000);
    await expectRestored(site, right);
    await untilLetGo(site, paths, can);
  });

  if (!can.ids) return;
  test('demands that the system has forgotten are made again, which is no try of their files', async () => {
    const site = opened();
    const paths = pathsIn('forgotten', 3);
    const right = await site.put(toFiles(paths));
    const id = await site.request('/forgotten/');
    await site.untilStaging('them to be asked for', (states) => paths.every((path) => states[path] === 'ASKED'));
    const before = countStages(site);
    await site.kind.bench.forget();
    await waitFor('them to be asked for again', async () => {
      site.clock.advance(1);
      return countStages(site) > before;
    });
    const tries = Object.values(await readTries(site.app, id));
    expect(tries.map(({ attempts }) => attempts)).toEqual([0, 0, 0]);
    await site.bring(id, 'COMPLETED', paths);
    await expectRestored(site, right);
    await untilLetGo(site, paths, can);
  });
}

function countStages({ kind }: Site): number {
  return kind.calls().filter((call) => call === 'stage').length;
}

function describeReads(opened: () => Site, can: RealTraits): void {
  test('a read that breaks off goes on from there', async () => {
    const site = opened();
    const [file = ''] = pathsIn('cut', 1);
    const right = await site.put([{ path: file, size: 3 * MIB }]);
    site.kind.spoilRead({ cut: 1_000_003 });
    const { holds } = await site.bring(await site.request('/cut/'), 'COMPLETED', [file]);
    expect(holds.map(({ error }) => error)).toEqual([null]);
    await expectRestored(site, right);
    const reads = site.kind.readsOf(file);
    if (can.offsets) expect(reads.filter((from) => from === 0)).toEqual([0]);
    expect(reads.length).toBeGreaterThan(1);
    await untilLetGo(site, [file], can);
  });

  test('wrong bytes are a try, and the file is brought anew before the next one', async () => {
    const site = opened();
    const [file = ''] = pathsIn('wrong', 1);
    const right = await site.put([{ path: file }]);
    site.kind.spoilRead('wrong');
    const before = countStages(site);
    const id = await site.request('/wrong/');
    const tried = await waitFor('the first try', async () => {
      await site.kind.bench.arrive([file]);
      site.clock.advance(0.2);
      const { [file]: tries } = await readTries(site.app, id);
      return tries?.attempts === 1 && tries;
    });
    expect(tried).toMatchObject({ lastErrorClass: 'MEDIA', lastError: expect.stringContaining('checksum') });
    await site.bring(id, 'COMPLETED', [file]);
    await expectRestored(site, right);
    expect(countStages(site) - before).toBeGreaterThanOrEqual(2);
    await untilLetGo(site, [file], can);
  });

  test('what has left the disk there before it was read is asked for again, which is no try', async () => {
    const site = opened();
    const paths = pathsIn('gone', 3);
    const right = await site.put(toFiles(paths));
    site.kind.spoilRead('gone');
    const { holds } = await site.bring(await site.request('/gone/'), 'COMPLETED', paths);
    expect(holds.map(({ error }) => error)).toEqual([null, null, null]);
    await expectRestored(site, right);
    await untilLetGo(site, paths, can);
  });
}

function describeLettingGo(opened: () => Site, can: RealTraits): void {
  test('what is cancelled before it comes is let go, and what comes all the same is shown until it has left', async () => {
    const site = opened();
    const { bench } = site.kind;
    const paths = pathsIn('cancelled', 3);
    await site.put(toFiles(paths));
    const id = await site.request('/cancelled/');
    await site.untilStaging('them to be asked for', (states) => paths.every((path) => states[path] === 'ASKED'));
    await cancel(site.app, id);
    await untilLetGo(site, paths, can);
    await bench.arrive(paths);
    expect(await Promise.all(paths.map((path) => bench.isStaged(path)))).toEqual(paths.map(() => !can.release));
    if (can.release) return;
    const keptOf = async () => (await site.readKept()).filter(({ path }) => paths.includes(path));
    expect((await keptOf()).map(({ until }) => until)).toEqual([null, null, null]);
    if (!can.until) {
      site.clock.advance(3600);
      expect((await keptOf()).length).toBe(3);
    } else {
      await waitFor('it to say until when', async () => {
        site.clock.advance(60);
        return (await keptOf()).every(({ until }) => until !== null);
      });
    }
    for (const path of paths) await bench.evict(path);
    const moved = can.until ? 4 * 86_400 : 600;
    await waitFor('them to be shown no more', async () => {
      site.clock.advance(moved);
      return (await keptOf()).length === 0;
    });
  });
}
