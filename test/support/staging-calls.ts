/** Contract suite of staging libraries: tests of the calls stage, poll and release. */
import { expect } from 'vitest';
import { TapeError } from '../../src/core/errors.js';
import type { FileState } from '../../src/tape/staging.js';
import {
  ask,
  byPath,
  bytesOf,
  look,
  makeReady,
  putFiles,
  readStaged,
  settle,
  staged,
  wordsOf,
} from './staging-bench.js';
import type { BenchTest, StagingTraits } from './staging-library.js';
import { quiet } from './tape-library.js';
import { waitFor } from './wait.js';

/** Paths with characters that are special in shells, URLs, lines or options. */
export const ODD_PATHS = [
  '/suite/with spaces  and one at its end ',
  '/suite/Grüße/日本語/🎞.nc',
  '/suite/\u00e9',
  '/suite/e\u0301',
  '/suite/two\nlines\r\nand\ttabs',
  '/suite/-rf',
  '/--help/-n',
  `/suite/'single' "double" \`back\``,
  '/suite/$(exit 1);&|<>*?[a-z]{b,c}~!^',
  '/suite/100%/%2e%2e/%41+b=c&d#e?f:g@h,i',
  '/suite/back\\slash\\n',
  `/suite/${'x'.repeat(240)}`,
];

const THREE = ['/suite/a', '/suite/b', '/suite/c'];

export function describeStagingCalls(benchTest: BenchTest, can: StagingTraits): void {
  describeArrival(benchTest, can);
  if (!can.isShort) {
    describeAsking(benchTest);
    describeAnswers(benchTest);
    describeProcesses(benchTest);
  }
  if (can.release) describeReleases(benchTest);
  else describeKept(benchTest, can);
}

function describeArrival(benchTest: BenchTest, can: StagingTraits): void {
  benchTest('a file that is asked for waits until it comes, and is ready then', async (bench) => {
    const asked = await ask(bench.library, await putFiles(bench, THREE));
    await look(bench.library, asked);
    expect(wordsOf(asked.states, THREE).filter((word) => !['waiting', 'nothing'].includes(word))).toEqual([]);
    expect(await bench.isStaged('/suite/a')).toBe(false);
    await bench.arrive(['/suite/a', '/suite/b']);
    await settle(bench.library, asked, ['/suite/a', '/suite/b']);
    expect(wordsOf(asked.states, THREE.slice(0, 2))).toEqual(['ready', 'ready']);
    expect(['waiting', 'nothing']).toContain(wordsOf(asked.states, ['/suite/c'])[0]);
    expect(await bench.isStaged('/suite/a')).toBe(true);
    expect(asked.demand.id === null).toBe(!can.ids);
  });

  benchTest('it is told when a file leaves by itself, where that is known', async (bench) => {
    const { states } = await makeReady(bench, await putFiles(bench, ['/suite/a']));
    const state = states.get('/suite/a') as { until: Date | null };
    if (!can.until) expect(state.until).toBeNull();
    else expect(state.until?.getTime()).toBeGreaterThan(Date.now());
  });
}

function describeAsking(benchTest: BenchTest): void {
  benchTest('asking again is safe, before the files have come and afterwards', async (bench) => {
    const files = await putFiles(bench, THREE);
    await ask(bench.library, files);
    const again = await ask(bench.library, files);
    await bench.arrive(THREE);
    expect(wordsOf(await settle(bench.library, again), THREE)).toEqual(['ready', 'ready', 'ready']);
    const late = await ask(bench.library, files);
    expect(wordsOf(await settle(bench.library, late), THREE)).toEqual(['ready', 'ready', 'ready']);
    expect(await readStaged(bench.library, staged('/suite/b'))).toEqual(bytesOf('/suite/b'));
  });

  benchTest('a file that is not there is refused by itself, and those with it come', async (bench) => {
    const files = await putFiles(bench, THREE);
    const asked = await ask(bench.library, [...files.slice(0, 1), staged('/suite/missing'), ...files.slice(1)]);
    await bench.arrive([...THREE, '/suite/missing']);
    const states = await settle(bench.library, asked);
    expect(wordsOf(states, [...THREE, '/suite/missing'])).toEqual(['ready', 'ready', 'ready', 'failed']);
    const { error } = states.get('/suite/missing') as { error: TapeError };
    expect(error).toBeInstanceOf(TapeError);
    expect(error.errorClass).toBe('PERMANENT');
  });

  benchTest('so many files as its limits say are asked for, looked at and let go in one call', async (bench) => {
    const { library } = bench;
    const { stage, poll, release } = library.limits;
    for (const limit of [stage, poll, release]) expect(Number.isSafeInteger(limit) && limit >= 1).toBe(true);
    expect(library.pollSeconds.least).toBeGreaterThan(0);
    expect(library.pollSeconds.most).toBeGreaterThanOrEqual(library.pollSeconds.least);
    const count = Math.min(stage, poll, release, 50);
    const paths = Array.from({ length: count }, (_, index) => `/suite/many/${index}`);
    const asked = await makeReady(bench, await putFiles(bench, paths));
    expect(new Set(wordsOf(asked.states, paths))).toEqual(new Set(['ready']));
    expect([...asked.states.keys()].sort()).toEqual([...paths].sort());
    const kept = await library.release(asked.demand, quiet());
    expect(kept.map(({ path }) => path).filter((path) => !paths.includes(path))).toEqual([]);
  });
}

function describeAnswers(benchTest: BenchTest): void {
  benchTest(
    'paths in answers are those that were given, however odd they are, and the bytes are theirs',
    async (bench) => {
      const files = await putFiles(bench, ODD_PATHS);
      const asked = await makeReady(bench, files);
      expect([...asked.states.keys()].sort()).toEqual([...ODD_PATHS].sort());
      expect(wordsOf(asked.states, ODD_PATHS)).toEqual(ODD_PATHS.map(() => 'ready'));
      for (const file of files) expect(await readStaged(bench.library, file)).toEqual(bytesOf(file.path));
      const polled = await bench.library.poll(asked.demand, quiet());
      expect([...byPath(polled).keys()].sort()).toEqual([...ODD_PATHS].sort());
      const kept = await bench.library.release(asked.demand, quiet());
      expect(kept.map(({ path }) => path).filter((path) => !ODD_PATHS.includes(path))).toEqual([]);
    },
  );

  benchTest('a poll for some files of a demand says nothing of the others', async (bench) => {
    const files = await putFiles(bench, THREE);
    const { demand } = await makeReady(bench, files);
    const states = await bench.library.poll({ ...demand, files: files.slice(1, 2) }, quiet());
    expect(states.map(({ path, state }) => [path, state])).toEqual([['/suite/b', 'ready']]);
  });

  benchTest('demands that are made and looked at side by side do not get into each other', async (bench) => {
    const groups = Array.from({ length: 5 }, (_, group) => THREE.map((path) => `${path}/${group}`));
    await putFiles(bench, groups.flat());
    const asked = await Promise.all(
      groups.map((paths) =>
        ask(
          bench.library,
          paths.map((path) => staged(path)),
        ),
      ),
    );
    await bench.arrive(groups.flat());
    const states = await Promise.all(asked.map((each) => settle(bench.library, each)));
    for (const [index, paths] of groups.entries()) {
      const found: ReadonlyMap<string, FileState> = states[index] ?? new Map();
      expect([...found.keys()].sort()).toEqual([...paths].sort());
      expect(wordsOf(found, paths)).toEqual(['ready', 'ready', 'ready']);
    }
  });
}

function describeProcesses(benchTest: BenchTest): void {
  benchTest('each call may come from another process, which knows nothing of the ones before', async (bench) => {
    const files = await putFiles(bench, THREE);
    const asked = await ask(bench.reopen(), files);
    await look(bench.reopen(), asked);
    await bench.arrive(THREE);
    expect(wordsOf(await settle(bench.reopen(), asked), THREE)).toEqual(['ready', 'ready', 'ready']);
    for (const file of files) expect(await readStaged(bench.reopen(), file)).toEqual(bytesOf(file.path));
    await bench.reopen().release(asked.demand, quiet());
  });
}

function describeReleases(benchTest: BenchTest): void {
  benchTest('what is released leaves the disk there, and the rest of its demand stays', async (bench) => {
    const files = await putFiles(bench, THREE);
    const { demand } = await makeReady(bench, files);
    expect(await bench.library.release({ ...demand, files: files.slice(0, 1) }, quiet())).toEqual([]);
    await waitFor('the file to leave', async () => !(await bench.isStaged('/suite/a')));
    expect(await bench.isStaged('/suite/b')).toBe(true);
    expect(await readStaged(bench.library, staged('/suite/c'))).toEqual(bytesOf('/suite/c'));
  });

  benchTest('what is released before it came does not come', async (bench) => {
    const { demand } = await ask(bench.library, await putFiles(bench, THREE));
    expect(await bench.library.release(demand, quiet())).toEqual([]);
    await bench.arrive(THREE);
    await waitFor('nothing to be there', async () => !(await bench.isStaged('/suite/a')));
    expect(await Promise.all(THREE.map((path) => bench.isStaged(path)))).toEqual([false, false, false]);
  });

  benchTest('to release twice, or what the system does not know, is safe', async (bench) => {
    const files = await putFiles(bench, THREE);
    const { demand } = await makeReady(bench, files);
    const more = { ...demand, files: [...files, staged('/suite/unknown')] };
    expect(await bench.library.release(demand, quiet())).toEqual([]);
    await waitFor('the file to leave', async () => !(await bench.isStaged('/suite/a')));
    expect(await bench.library.release(demand, quiet())).toEqual([]);
    expect(await bench.library.release(more, quiet())).toEqual([]);
  });

  benchTest('what was released can be asked for again', async (bench) => {
    const files = await putFiles(bench, THREE);
    const { demand } = await makeReady(bench, files);
    await bench.library.release(demand, quiet());
    await waitFor('the file to leave', async () => !(await bench.isStaged('/suite/a')));
    const { states } = await makeReady(bench, files);
    expect(wordsOf(states, THREE)).toEqual(['ready', 'ready', 'ready']);
    expect(await readStaged(bench.library, staged('/suite/a'))).toEqual(bytesOf('/suite/a'));
  });
}

function describeKept(benchTest: BenchTest, can: StagingTraits): void {
  benchTest('what is ready and released stays, and it is told until when', async (bench) => {
    const files = await putFiles(bench, THREE);
    const { demand } = await makeReady(bench, files);
    for (let time = 0; time < 2; time++) {
      const kept = await bench.library.release(demand, quiet());
      expect(kept.map(({ path }) => path).sort()).toEqual(THREE);
      for (const { until } of kept) expect(until).toEqual(can.until ? expect.any(Date) : null);
    }
    expect(await bench.isStaged('/suite/a')).toBe(true);
  });

  benchTest('what comes although it was released is told as kept, and is until it has left', async (bench) => {
    const { demand } = await ask(bench.library, await putFiles(bench, THREE));
    const release = async () => (await bench.library.release(demand, quiet())).map(({ path }) => path).sort();
    const told = await release();
    await bench.arrive(THREE);
    const there: string[] = [];
    for (const path of THREE) if (await bench.isStaged(path)) there.push(path);
    expect(told).toEqual(there);
    expect(await release()).toEqual(there);
    for (const path of there) await bench.evict(path);
    expect(await release()).toEqual([]);
  });

  benchTest('to release what has not come, or what the system does not know, is safe', async (bench) => {
    const { demand } = await ask(bench.library, await putFiles(bench, THREE));
    const files = [...demand.files, staged('/suite/unknown')];
    const known = files.map(({ path }) => path);
    const kept = await bench.library.release({ ...demand, files }, quiet());
    expect(kept.filter(({ path }) => !known.includes(path))).toEqual([]);
    expect(await bench.library.release({ ...demand, files: [staged('/suite/unknown')] }, quiet())).toEqual([]);
  });
}
