/** Time limits of library types. The longer one of the type's own limit and TAPEGATE_TAPE_TIMEOUT applies. */
import { expect, test } from 'vitest';
import { CallWatch, tapeSeconds } from '../../src/restore-area/call-watch.js';
import { parseSettings } from '../../src/tape/kind.js';
import { createDriveLibrary, createStagingLibrary, kinds } from '../../src/tape/kinds.js';
import { longestSeconds, ltfsSettings } from '../../src/tape/ltfs/settings.js';

const site = { dataDir: '/nowhere', env: {} };
const LONG = 5000;

const drives = { d1: { device: '/dev/sg1', element: 0, mountPoint: '/mnt/0' } };
const changed = (step: string) => ({ changer: '/dev/sg0', drives, seconds: { [step]: LONG } });

test.each([
  ['command', { read: ['cat'], mountSeconds: LONG }, 'mount'],
  ['command', { read: ['cat'], silenceSeconds: LONG }, 'read'],
  ['command', { read: ['cat'], unmountSeconds: LONG }, 'unmount'],
  ...['lock', 'status', 'load', 'unload', 'mount', 'unmount'].map((step) => ['ltfs', changed(step), 'mount'] as const),
  ...['lock', 'status', 'unload', 'unmount'].map((step) => ['ltfs', changed(step), 'unmount'] as const),
] as const)('a drive of the type %s with %j stalls later than that, at its %s', (kind, settings, what) => {
  const { ownSeconds } = createDriveLibrary({ name: 'east', kind, settings }, site);
  expect(tapeSeconds({ tapeTimeout: 900 }, ownSeconds?.[what])).toBeGreaterThan(LONG);
});

const scripts = { stage: ['a'], poll: ['b'], fetch: ['c'] };
const bucket = { bucket: 'tapes', region: 'eu-test-1' };

test.each([
  ['command-staging', { ...scripts, callSeconds: LONG }, 'call', LONG],
  ['command-staging', { ...scripts, silenceSeconds: LONG }, 'read', LONG],
  ...['connectSeconds', 'answerSeconds', 'silenceSeconds'].flatMap((name) =>
    (['call', 'read'] as const).map((what) => ['wlcg', { url: 'https://se', [name]: LONG }, what, LONG] as const),
  ),
  ['s3', { ...bucket, timeoutSeconds: 600 }, 'call', 600],
  ['s3', { ...bucket, timeoutSeconds: 600 }, 'read', 600],
] as const)('a library of the type %s with %j ends a %s later than that', (kind, settings, what, seconds) => {
  const { ownSeconds } = createStagingLibrary({ name: 'silo', kind, settings }, site);
  expect(tapeSeconds({ tapeTimeout: 60 }, ownSeconds?.[what])).toBeGreaterThan(seconds);
});

test('TAPEGATE_TAPE_TIMEOUT counts if it is longer, or if a library has no limit', () => {
  expect([tapeSeconds({ tapeTimeout: 900 }, 60), tapeSeconds({ tapeTimeout: 900 }, undefined)]).toEqual([900, 900]);
});

test('a mount of LTFS may take as long as all its commands', () => {
  const { seconds } = parseSettings(ltfsSettings, { changer: '/dev/sg0', drives });
  const { mount, unmount } = longestSeconds({ seconds });
  expect(mount).toBeGreaterThan(seconds.lock + seconds.status + seconds.unload + seconds.load + seconds.mount);
  expect(unmount).toBeGreaterThan(seconds.unmount + seconds.unload);
});

test('a call with a longer limit outlasts a stalled call at the same drive', async () => {
  const watch = new CallWatch({ disk: 0.1, tape: 0.1 });
  const place = { kind: 'tape', volume: 'V1', drive: 'd1' } as const;
  let end: (value: string) => void = () => {};
  const long = watch.follow(place, () => new Promise<string>((resolve) => (end = resolve)), 60);
  const never = watch.follow(place, () => new Promise<never>(() => {}));
  await expect(never).rejects.toThrow('d1, at V1, has not answered for 0.1 s');
  end('mounted');
  expect(await long).toBe('mounted');
});

test('the queue needs no positions for exactly those library types that find files by path', async () => {
  const { pathKinds } = await import('../../src/domain/conditions.js');
  const byPath = Object.entries(kinds).filter(([, kind]) => kind.contract === 'drive' && kind.findsBy === 'path');
  expect(byPath.map(([name]) => name).sort()).toEqual([...pathKinds].sort());
});
