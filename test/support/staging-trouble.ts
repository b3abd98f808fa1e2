/** Contract suite of staging libraries: tests of failures between a library and its system. */
import { expect } from 'vitest';
import { TapeError } from '../../src/core/errors.js';
import { LibraryError } from '../../src/tape/drive-library.js';
import { type Demand, RetryLaterError, type StagedFile, type StagingLibrary } from '../../src/tape/staging.js';
import { ask, bytesOf, errorOf, makeReady, putFiles, readStaged, settle, wordsOf } from './staging-bench.js';
import type { BenchTest, StagingTraits } from './staging-library.js';
import { quiet } from './tape-library.js';
import { waitFor } from './wait.js';

const TWO = ['/suite/a', '/suite/b'];

export function describeStagingTrouble(benchTest: BenchTest, can: StagingTraits): void {
  describeSpoiled(benchTest);
  describeLostAnswers(benchTest, can);
  describeBusy(benchTest, can);
  describeAborts(benchTest);
  if (can.ids) describeForgotten(benchTest);
}

function describeSpoiled(benchTest: BenchTest): void {
  benchTest(
    'a file that is lost fails for good, and one that cannot be had for now is worth another try',
    async (bench) => {
      const paths = [...TWO, '/suite/lost', '/suite/away'];
      const files = await putFiles(bench, paths);
      await bench.spoil('/suite/lost', 'lost');
      await bench.spoil('/suite/away', 'unavailable');
      const asked = await ask(bench.library, files);
      await bench.arrive(paths);
      const states = await settle(bench.library, asked);
      expect(wordsOf(states, paths)).toEqual(['ready', 'ready', 'failed', 'failed']);
      const errors = ['/suite/lost', '/suite/away'].map((path) => (states.get(path) as { error: TapeError }).error);
      for (const error of errors) {
        expect(error).toBeInstanceOf(TapeError);
        expect(error.message).not.toBe('');
      }
      expect(errors.map(({ errorClass }) => errorClass)).toEqual([
        expect.stringMatching(/PERMANENT|MEDIA/),
        'TRANSIENT',
      ]);
      const again = await putFiles(bench, ['/suite/away']);
      expect(wordsOf((await makeReady(bench, again)).states, ['/suite/away'])).toEqual(['ready']);
    },
  );
}

/** Expects a library error, or success if the library itself repeats the call. */
async function expectLibraryError(call: Promise<unknown>): Promise<void> {
  const [result] = await Promise.allSettled([call]);
  if (result.status === 'rejected') expect(result.reason).toBeInstanceOf(LibraryError);
}

function describeLostAnswers(benchTest: BenchTest, can: StagingTraits): void {
  benchTest('what was asked for although the answer was lost is found by asking again', async (bench) => {
    const files = await putFiles(bench, TWO);
    await bench.lose('stage');
    await expectLibraryError(bench.library.stage(files, quiet()));
    const asked = await ask(bench.library, files);
    await bench.arrive(TWO);
    expect(wordsOf(await settle(bench.library, asked), TWO)).toEqual(['ready', 'ready']);
    for (const file of files) expect(await readStaged(bench.library, file)).toEqual(bytesOf(file.path));
    await bench.library.release(asked.demand, quiet());
  });

  benchTest('a poll whose answer was lost changes nothing', async (bench) => {
    const asked = await ask(bench.library, await putFiles(bench, TWO));
    await bench.arrive(TWO);
    await bench.lose('poll');
    await expectLibraryError(bench.library.poll(asked.demand, quiet()));
    expect(wordsOf(await settle(bench.library, asked), TWO)).toEqual(['ready', 'ready']);
  });

  if (!can.release) return;
  benchTest('what was released although the answer was lost is released, and can be again', async (bench) => {
    const { demand } = await makeReady(bench, await putFiles(bench, TWO));
    await bench.lose('release');
    await expectLibraryError(bench.library.release(demand, quiet()));
    await bench.library.release(demand, quiet());
    await waitFor('the files to leave', async () => !(await bench.isStaged('/suite/a')));
    expect(await bench.isStaged('/suite/b')).toBe(false);
  });
}

type Calls = (library: StagingLibrary, demand: Demand, signal: AbortSignal) => Record<string, () => Promise<unknown>>;

const callsOf: Calls = (library, demand, signal) => ({
  stage: () => library.stage(demand.files, signal),
  poll: () => library.poll(demand, signal),
  release: () => library.release(demand, signal),
});

function describeBusy(benchTest: BenchTest, can: StagingTraits): void {
  const asking = can.release ? ['stage', 'poll', 'release'] : ['stage', 'poll'];
  for (const what of asking) {
    benchTest(`a ${what} that is to be made later says when, and is made then`, async (bench) => {
      const files = await putFiles(bench, TWO);
      const { demand } = await makeReady(bench, files);
      const call = callsOf(bench.library, demand, quiet())[what];
      await bench.busy(7);
      const error = await errorOf(call?.() ?? Promise.resolve());
      expect(error).toBeInstanceOf(RetryLaterError);
      expect(error).toMatchObject({ retryAfterSeconds: 7, errorClass: 'TRANSIENT' });
      await call?.();
      const { states } = await makeReady(bench, files);
      expect(wordsOf(states, TWO)).toEqual(['ready', 'ready']);
    });
  }
}

function describeAborts(benchTest: BenchTest): void {
  benchTest('a call that is aborted, before it or while it is under way, rejects with the reason', async (bench) => {
    const files: StagedFile[] = await putFiles(bench, TWO);
    const { demand } = await makeReady(bench, files);
    const reason = new Error('stop');
    for (const call of Object.values(callsOf(bench.library, demand, AbortSignal.abort(reason)))) {
      expect(await errorOf(call())).toBe(reason);
    }
    for (const what of ['stage', 'poll'] as const) {
      const abort = new AbortController();
      const calling = callsOf(bench.library, demand, abort.signal)[what]?.();
      abort.abort(reason);
      expect(await errorOf(calling ?? Promise.resolve())).toBe(reason);
    }
    const { states } = await makeReady(bench, files);
    expect(wordsOf(states, TWO)).toEqual(['ready', 'ready']);
  });
}

function describeForgotten(benchTest: BenchTest): void {
  benchTest(
    'a demand that the system has forgotten is told as that, for what is not there without it',
    async (bench) => {
      const files = await putFiles(bench, TWO);
      const { demand } = await ask(bench.library, files);
      await bench.arrive(['/suite/a']);
      await bench.forget();
      for (const forgotten of [demand, { ...demand, id: 'no-such-demand' }]) {
        const states = new Map((await bench.library.poll(forgotten, quiet())).map((state) => [state.path, state]));
        expect(['ready', 'forgotten']).toContain(wordsOf(states, ['/suite/a'])[0]);
        expect(wordsOf(states, ['/suite/b'])).toEqual(['forgotten']);
        await bench.library.release({ ...forgotten, files: files.slice(1) }, quiet());
      }
      const again = await makeReady(bench, files);
      expect(wordsOf(again.states, TWO)).toEqual(['ready', 'ready']);
      for (const file of files) expect(await readStaged(bench.library, file)).toEqual(bytesOf(file.path));
    },
  );
}
