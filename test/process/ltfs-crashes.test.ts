/** An engine is killed at each step from loading to unloading a cartridge. The next engine works in each case. */
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest';
import { bundle } from '../support/bundle.js';
import { LIBRARY_ENV } from '../support/library-dir.js';
import { createLtfsBench, type LtfsBench, SLOTS } from '../support/ltfs/bench.js';
import { cleanUp, kill, type Running, startProcess } from '../support/process.js';
import { at, mount, readAll, text } from '../support/tape-library.js';

let program: string;

beforeAll(async () => {
  program = await bundle('visit-cartridge');
});

afterAll(cleanUp);

type Step = Parameters<LtfsBench['behave']>[0];

/** Kill points in order. LTFS ends on its own after the unmount. */
const points: { at: Step; when: 'before' | 'after' }[] = [
  { at: 'status', when: 'before' },
  { at: 'load', when: 'before' },
  { at: 'load', when: 'after' },
  { at: 'mount', when: 'before' },
  { at: 'mount', when: 'after' },
  { at: 'unmount', when: 'before' },
  { at: 'unmount', when: 'after' },
  { at: 'end', when: 'before' },
  { at: 'unload', when: 'before' },
  { at: 'unload', when: 'after' },
];

const successors = [
  { volume: 'V1', drive: 'drive-1' },
  { volume: 'V2', drive: 'drive-1' },
  { volume: 'V1', drive: 'drive-2' },
];

async function makeBench(): Promise<LtfsBench> {
  const bench = createLtfsBench();
  onTestFinished(() => bench.close());
  for (const volume of ['V1', 'V2']) await bench.put(volume, 1n, text(1n), at(1n).path);
  return bench;
}

function startVisit({ settings, dataDir }: LtfsBench): Running {
  return startProcess(process.execPath, [program, JSON.stringify(settings), dataDir, 'V1', 'drive-1', at(1n).path], {
    stdin: null,
    env: LIBRARY_ENV,
  });
}

/** Mounts, reads and unmounts a volume as the next engine. Nothing of the dead engine may remain. */
async function expectVisit(bench: LtfsBench, { volume, drive }: (typeof successors)[number]): Promise<void> {
  const mounted = await mount(bench.reopen(), volume, drive);
  expect(await readAll(mounted, 1n)).toEqual(text(1n));
  await mounted.unmount();
  const { slots, drives } = bench.readChanger();
  expect(drives.map((each) => each.volume)).toEqual(
    drive === 'drive-1' && volume === 'V1' ? [null, null] : expect.anything(),
  );
  expect(bench.mounts()).toBe('');
  const volumes = [...slots, ...drives].map((each) => each.volume).filter((each) => each !== null);
  expect(volumes.sort()).toEqual(['V1', 'V2']);
  expect(slots).toHaveLength(SLOTS);
}

/** Returns whether the cartridge stays in a drive. If so, other volumes and drives are tested too. */
const isLoaded = ({ at: step, when }: (typeof points)[number]) =>
  when === 'after' && (step === 'load' || step === 'mount');

test.each(
  points.flatMap((point) =>
    successors.filter((_, n) => n === 0 || isLoaded(point)).map((next) => ({ ...point, ...next })),
  ),
)('after a kill $when $at, the next engine reads $volume in $drive', async ({ at: step, when, volume, drive }) => {
  const bench = await makeBench();
  bench.behave(step, { hold: when });
  const visit = startVisit(bench);
  if (['unmount', 'end', 'unload'].includes(step)) {
    await visit.waitForOutput(/read \d+/);
    visit.child.stdin?.end();
  }
  await bench.waitUntilHeld(step);
  await kill(visit);
  // the next engine meets a command or LTFS process that is still running
  const next = expectVisit(bench, { volume, drive });
  bench.goOn(step);
  await next;
});

test('a living engine keeps its drive and its cartridge', async () => {
  const bench = await makeBench();
  const visit = startVisit(bench);
  await visit.waitForOutput(/read \d+/);
  const other = bench.reopen({ seconds: { lock: 1 } });
  await expect(mount(other, 'V2', 'drive-1')).rejects.toThrow('another process uses drive-1');
  await expect(mount(other, 'V1', 'drive-2')).rejects.toThrow('(drive-1), which another process uses');
  visit.child.stdin?.end();
  expect(await visit.ended).toMatchObject({ code: 0, stdout: expect.stringContaining('unmounted') });
  await expectVisit(bench, { volume: 'V2', drive: 'drive-1' });
});
