/** Estimates of when files in staging libraries will be restored. */
import { afterAll, expect, test } from 'vitest';
import { secondsBetween } from '../../src/cli/terminal/times.js';
import { updateLibrary } from '../../src/domain/libraries/changes.js';
import { LibraryError } from '../../src/tape/drive-library.js';
import { createClock } from '../support/clock.js';
import { addQuota } from '../support/factories.js';
import { askData } from '../support/graphql.js';
import { createMemoryLibrary } from '../support/memory-library.js';
import type { MemoryTapeSystem } from '../support/memory-staging.js';
import { cleanUp, runCli } from '../support/process.js';
import { waitForState } from '../support/request-view.js';
import { makeRequest } from '../support/rest.js';
import { addMemoryLibrary, addRemote, readStates } from '../support/staging.js';
import { useApp } from '../support/use-app.js';
import { waitFor } from '../support/wait.js';

let system: MemoryTapeSystem;
const clock = createClock();
const alice = { quota: 'alice', retention: '2099-01-01' };

const options = { library: createMemoryLibrary(), now: clock.now, engine: { idleMs: 200 } };
const app = useApp(options, async () => {
  await addQuota(app.ctx, 'alice', 10n ** 12n);
  system = await addMemoryLibrary(app.ctx, { name: 'silo' });
});
afterAll(cleanUp);

const put = (directory: string, count: number) =>
  addRemote(app.ctx, system, {
    library: 'silo',
    files: Array.from({ length: count }, (_, n) => ({ path: `/${directory}/${n}` })),
  });

interface Told {
  end: { earliest: string; planned: string; latest: string } | null;
  endUnknown: string | null;
}

const END = 'end { earliest planned latest } endUnknown';

async function estimate(pattern: string): Promise<Told> {
  const query = `query ($input: CreateRequestInput!) { estimateRequest(input: $input) { estimate { ${END} } } }`;
  const input = { quota: 'alice', pattern };
  return (await askData<{ estimateRequest: { estimate: Told } }>(app, query, { input })).estimateRequest.estimate;
}

async function readWaiting(id: number): Promise<Told | null> {
  const query = `query ($id: Int!) { request(requestId: $id) { waiting { ${END} } } }`;
  return (await askData<{ request: { waiting: Told | null } }>(app, query, { id })).request.waiting;
}

const minutesTo = (time: string | undefined) => Math.round(secondsBetween(clock.now(), time ?? '') / 60);
const minutesOf = ({ end }: Told) => [end?.earliest, end?.planned, end?.latest].map(minutesTo);
/** Waits until there is an estimate. After a change of its settings, a library's readers must start again. */
const minutesOnce = async (read: () => Promise<Told | null>) =>
  minutesOf(
    await waitFor('an estimate', async () => {
      const told = await read();
      return told?.end ? told : undefined;
    }),
  );
const minutesOnceKnown = async (pattern: string) => await minutesOnce(() => estimate(pattern));
const working = () =>
  waitFor('the readers to work', async () => {
    const { drives } = await askData<{ drives: { edges: { node: { isClaimed: boolean; name: string } }[] } }>(
      app,
      '{ drives { edges { node { name isClaimed } } } }',
    );
    const own = drives.edges.filter(({ node }) => node.name.startsWith('silo-'));
    return own.length === 2 && own.every(({ node }) => node.isClaimed);
  });

test('there is no estimate for a library without restores and settings, and the answer says why', async () => {
  await put('none', 2);
  await working();
  expect(await estimate('/none/')).toEqual({
    end: null,
    endUnknown: 'library silo has not staged a file yet, and its settings do not say how long staging takes',
  });
  const env = { TAPEGATE_URL: app.url, TAPEGATE_TOKEN: app.token };
  const { stdout } = await runCli(['request', '--dry-run', '--quota', 'alice', '--pattern', '/none/'], { env });
  expect(stdout).toContain(
    '\nend         unknown: library silo has not staged a file yet, and its settings do not say',
  );
});

test('the estimate follows the wait in the settings, and is shorter for files that were requested before', async () => {
  await updateLibrary(app.ctx, { name: 'silo', settings: { waitMinutes: '60', waitMinutesMost: '120' } });
  await put('told', 1);
  expect(await minutesOnceKnown('/told/')).toEqual([60, 90, 180]);
  const id = await makeRequest(app, { ...alice, patterns: '/told/' });
  await waitFor('the file to be requested', async () => (await readStates(app.ctx))['/told/0'] === 'ASKED');
  clock.advance(1800);
  expect(await minutesOnce(() => readWaiting(id))).toEqual([30, 60, 120]);
  expect(await minutesOnceKnown('/told/')).toEqual([30, 60, 120]);
  clock.advance(1200);
  system.arrive(['/told/0']);
  await waitForState(app, id, 'COMPLETED');
});

test('the measured wait counts more than the settings, until these change', async () => {
  await put('measured', 1);
  expect(await minutesOnceKnown('/measured/')).toEqual([50, 50, 100]);
  await updateLibrary(app.ctx, { name: 'silo', drives: 2, depthFiles: 100 });
  expect(await minutesOnceKnown('/measured/')).toEqual([50, 50, 100]);
  await updateLibrary(app.ctx, { name: 'silo', settings: { waitMinutes: '300', waitMinutesMost: '300' } });
  expect(await minutesOnceKnown('/measured/')).toEqual([300, 300, 600]);
});

test('files beyond the depth wait several times as long', async () => {
  await updateLibrary(app.ctx, { name: 'silo', depthFiles: 10 });
  await put('many', 25);
  const [earliest, planned] = await minutesOnceKnown('/many/');
  expect([earliest, planned]).toEqual([900, 900]);
  await updateLibrary(app.ctx, { name: 'silo', depthFiles: null });
  expect((await minutesOnceKnown('/many/'))[1]).toBe(300);
});

test('there is no estimate while the library does not answer, and the answer says so', async () => {
  await put('away', 1);
  system.onCall = async () => {
    throw new LibraryError('TRANSIENT', 'the robot is being mended');
  };
  await makeRequest(app, { ...alice, patterns: '/away/' });
  await waitFor(
    'the reason',
    async () => (await estimate('/none/')).endUnknown === 'library silo has not answered recently',
  );
  expect((await estimate('/none/')).end).toBeNull();
  system.onCall = async () => {};
});
