/** The plan as users and operators read it, and what a request would take. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { secondsBetween } from '../../src/commands/times.js';
import { TapeError } from '../../src/errors.js';
import { setMedium } from '../../src/operations/catalogue/media.js';
import { resume, suspend } from '../../src/operations/suspensions.js';
import { createMemoryBackend } from '../../src/tape/memory.js';
import { startApp, type TestApp } from '../support/app.js';
import { addFiles, addQuota, addTaped } from '../support/factories.js';
import { askData } from '../support/graphql.js';
import { holdReads } from '../support/held-reads.js';
import { cleanUp, runCli } from '../support/process.js';
import { viewRequest } from '../support/request-view.js';
import { makeRequest } from '../support/rest.js';
import { openClient, subscribe } from '../support/streams.js';
import { createGate, waitFor } from '../support/wait.js';

const GB = 10n ** 9n;

interface Part {
  volume: string | null;
  place: number | null;
  reason: string;
  files: number;
  explanation: string;
}
interface Waiting {
  files: number;
  place: number | null;
  end: { earliest: string; planned: string; latest: string } | null;
  parts: { edges: { node: Part }[] };
}

async function readWaiting(app: TestApp, id: number): Promise<(Omit<Waiting, 'parts'> & { parts: Part[] }) | null> {
  const { request } = await askData<{ request: { waiting: Waiting | null } }>(
    app,
    `query ($id: Int!) { request(id: $id) { waiting {
      files place end { earliest planned latest }
      parts { edges { node { volume place reason files explanation } } }
    } } }`,
    { id },
  );
  const { waiting } = request;
  return waiting && { ...waiting, parts: waiting.parts.edges.map(({ node }) => node) };
}

interface PlanView {
  at: string;
  drives: { name: string; isClaimed: boolean; isOpen: boolean; volume: string | null; filesRunning: number }[];
  filesWaiting: number;
  queue: {
    edges: {
      node: { place: number | null; volume: string; files: number; drive: string | null; start: string | null };
    }[];
  };
}

async function readPlan(app: TestApp): Promise<PlanView> {
  const { plan } = await askData<{ plan: PlanView }>(
    app,
    `{ plan { at filesWaiting drives { name isClaimed isOpen volume filesRunning }
      queue { edges { node { place volume files drive start } } } } }`,
  );
  return plan;
}

const ESTIMATE = `query ($input: CreateRequestInput!) { estimateRequest(input: $input) {
  __typename ... on Failure { message } ... on Estimate {
    files bytes filesUnknown filesOnDisk bytesOnDisk filesOnTheirWay filesToRecall bytesToRecall filesWithoutPlace
    volumes mounts volumesSuspended quotaSize quotaUsed quotaUsedAfter isEnough end { earliest planned latest }
  } } }`;

describe('while no engine works', () => {
  let app: TestApp;
  beforeAll(async () => {
    app = await startApp();
    await addQuota(app.ctx, 'ann', 100n * GB);
    await addFiles(app.ctx, [
      { path: '/idle/1', size: 2n * GB, volume: 'I1' },
      { path: '/idle/2', size: GB, volume: 'I2' },
      { path: '/idle/disk', size: GB, volume: 'I2', stage: 'ONDISK' },
      { path: '/idle/lost', size: GB, volume: null, position: null },
    ]);
  });
  afterAll(async () => {
    await cleanUp();
    await app.close();
  });

  test('an estimate counts what there is, and stores nothing', async () => {
    const input = { quota: 'ann', files: ['/idle/1', '/idle/2', '/idle/disk', '/idle/lost', '/idle/unknown'] };
    const { estimateRequest } = await askData<{ estimateRequest: object }>(app, ESTIMATE, { input });
    expect(estimateRequest).toEqual({
      __typename: 'Estimate',
      files: 4,
      bytes: '5000000000',
      filesUnknown: 1,
      filesOnDisk: 1,
      bytesOnDisk: '1000000000',
      filesOnTheirWay: 0,
      filesToRecall: 2,
      bytesToRecall: '3000000000',
      filesWithoutPlace: 1,
      volumes: 2,
      mounts: 2,
      volumesSuspended: 0,
      quotaSize: '100000000000',
      quotaUsed: '0',
      quotaUsedAfter: '5000000000',
      isEnough: true,
      end: null, // no engine works
    });
    const { rows } = await app.ctx.db.pool.query('SELECT FROM request');
    expect(rows).toEqual([]);
  });

  test('an estimate refuses what a request would refuse, but tells of a quota that is too small', async () => {
    const ask = async (input: object) =>
      (await askData<{ estimateRequest: object }>(app, ESTIMATE, { input })).estimateRequest;
    await addQuota(app.ctx, 'poor', GB);
    expect(await ask({ quota: 'nobody', pattern: '/idle' })).toEqual({
      __typename: 'UnknownUser',
      message: 'there is no quota for user "nobody"',
    });
    expect(await ask({ quota: 'ann' })).toEqual({
      __typename: 'InvalidInput',
      message: 'pattern or files must be given, and neither is',
    });
    expect(await ask({ quota: 'ann', pattern: '/idle', retention: '2020-01-01' })).toMatchObject({
      message: expect.stringContaining('retention must be in the future: 2020-01-01T00:00:00 is not after '),
    });
    expect(await ask({ quota: 'ann', pattern: '/idle', maxFiles: 3 })).toEqual({
      __typename: 'InvalidInput',
      message: 'maxFiles is 3, and the request takes 4 files',
    });
    expect(await ask({ quota: 'poor', pattern: '/idle' })).toMatchObject({
      isEnough: false,
      quotaUsedAfter: '5000000000',
    });
  });

  test('request --dry-run says what it would take, and fails when the quota is too small', async () => {
    const env = { TAPEGATE_URL: app.url, TAPEGATE_TOKEN: app.token };
    const { code, stdout } = await runCli(['request', '--quota', 'ann', '--pattern', '/idle', '--dry-run'], { env });
    expect({ code, lines: stdout.split('\n') }).toEqual({
      code: 0,
      lines: [
        'files       4, 5.00 GB',
        'on disk     1, 1.00 GB, 1 of them at their primary place',
        'from tape   2, 3.00 GB, on 2 volumes; 2 to be mounted',
        'no place    1: on no volume that is known',
        'quota       ann: 0 bytes used, then 5.00 GB of 100 GB',
        'end         when it will be done cannot be told: something is out of service, no restore disk has room, or no engine works',
        'nothing was asked for',
        '',
      ],
    });
    const poor = await runCli(['request', '--quota', 'poor', '--pattern', '/idle', '--dry-run', '--json'], { env });
    expect(poor).toMatchObject({
      code: 1,
      stderr: 'tapegate: the quota of user "poor" is too small: 5000000000 bytes would be used of 1000000000\n',
    });
    expect(JSON.parse(poor.stdout)).toMatchObject({ files: 4, isEnough: false });
  });

  test('a request says that no engine works, and which files have no place on tape', async () => {
    const id = await makeRequest(app, { quota: 'ann', patterns: '/idle' });
    expect(await readWaiting(app, id)).toMatchObject({
      files: 3,
      place: null,
      end: null,
      parts: [
        { volume: null, reason: 'NO_PLACE', files: 1 },
        { volume: 'I1', reason: 'NO_DRIVE', files: 1 },
        { volume: 'I2', reason: 'NO_DRIVE', files: 1 },
      ],
    });
    const { stdout } = await runCli(['plan', String(id)], {
      env: { TAPEGATE_URL: app.url, TAPEGATE_TOKEN: app.token },
    });
    expect(stdout).toContain('cannot be told');
    expect(stdout).toMatch(/^- +I1 +1 +2\.00 GB +- +no engine has a drive in service$/m);
  });
});

describe('while an engine works', () => {
  let app: TestApp;
  const backend = createMemoryBackend();
  const gate = createGate();

  beforeAll(async () => {
    const room = { name: 'disk', totalBytes: 1000n * GB, freeBytes: 1000n * GB, hasNoInodes: false };
    app = await startApp({ backend, config: { drives: 1 }, engine: { readFileSystem: async () => room } });
    await app.ctx.db.pool.query('UPDATE restore_disk SET size = $1', [room.totalBytes]); // that of the test's file system may be small
    for (const user of ['ann', 'ben']) await addQuota(app.ctx, user, 1000n * GB);
    backend.onRead = async (volume, _position, bytes) => {
      if (volume === 'BUSY') await gate.opened;
      if (volume === 'BAD') throw new TapeError('TRANSIENT', 'the arm is stuck');
      return bytes;
    };
    await addTaped(app.ctx, backend, [
      { path: '/busy', volume: 'BUSY' },
      { path: '/bad', volume: 'BAD' },
    ]);
    await addFiles(app.ctx, [
      ...Array.from({ length: 12 }, (_, n) => ({ path: `/many/${n}`, volume: 'MANY', size: 3n * GB })),
      { path: '/one', volume: 'ONE', size: GB },
      { path: '/held', volume: 'HELD', size: GB },
    ]);
    await setMedium(app.ctx, { medium: 'lto-8', names: ['MANY', 'ONE', 'HELD'] });
  });
  afterAll(async () => {
    gate.open();
    await app.close();
  });

  test('the plan tells what the drive does and what it will do, and each request its place and a range', async () => {
    const bad = await makeRequest(app, { quota: 'ben', files: ['/bad'] });
    const failed = await waitFor('a failure', async () =>
      (await readWaiting(app, bad))?.parts.find(({ reason }) => reason === 'RETRY'),
    );
    expect(failed.explanation).toBe('it has failed, and is tried again later: the arm is stuck');
    const busy = await makeRequest(app, { quota: 'ann', files: ['/busy'] });
    await waitFor('a read', async () => backend.log.some(({ what, volume }) => what === 'read' && volume === 'BUSY'));
    const many = await makeRequest(app, { quota: 'ann', patterns: '/many/' });
    const one = await makeRequest(app, { quota: 'ben', files: ['/one'] });
    await suspend(app.ctx, { kind: 'VOLUME', name: 'HELD', mode: 'HELD', reason: 'it squeaks' });
    const held = await makeRequest(app, { quota: 'ben', files: ['/held'] });
    await app.ctx.db.pool.query(
      `UPDATE quota SET drive_seconds = CASE "user" WHEN 'ben' THEN 9000 ELSE 0 END, drive_seconds_at = $1`,
      [app.ctx.now()],
    );

    const plan = await readPlan(app);
    expect(plan.drives).toEqual([{ name: 'drive-1', isClaimed: true, isOpen: true, volume: 'BUSY', filesRunning: 1 }]);
    const queue = plan.queue.edges.map(({ node }) => node);
    const later = queue.filter(({ volume }) => volume !== 'BAD' && volume !== 'HELD');
    expect(queue.at(-1)).toMatchObject({ volume: 'HELD', files: 1, place: null, start: null });
    expect(later.map(({ volume, files, drive }) => ({ volume, files, drive }))).toEqual([
      { volume: 'MANY', files: 12, drive: 'drive-1' }, // ann has had less
      { volume: 'ONE', files: 1, drive: 'drive-1' },
    ]);

    expect(await readWaiting(app, busy)).toMatchObject({ files: 1, parts: [{ volume: 'BUSY', reason: 'READING' }] });
    expect(await readWaiting(app, held)).toMatchObject({
      end: null,
      place: null,
      parts: [{ volume: 'HELD', reason: 'VOLUME_SUSPENDED', explanation: 'its volume is out of service: it squeaks' }],
    });
    const [first, second] = [await readWaiting(app, many), await readWaiting(app, one)];
    expect(first).toMatchObject({ files: 12, parts: [{ volume: 'MANY', reason: 'QUEUED', files: 12 }] });
    expect(second?.place).toBe((first?.place ?? 0) + 1);
    // twelve files of 3 GB at 360 MB/s take 100 s and their locates; the second has a mount of its own after that
    const ends = [first?.end, second?.end].map((end) => {
      const [earliest, planned, latest] = [end?.earliest, end?.planned, end?.latest].map((time) =>
        secondsBetween(plan.at, time ?? ''),
      );
      return { earliest, planned, latest } as { earliest: number; planned: number; latest: number };
    });
    for (const { earliest, planned, latest } of ends) {
      expect(earliest).toBeGreaterThan(2);
      expect(planned).toBeGreaterThanOrEqual(earliest - 1);
      expect(latest).toBeGreaterThan(planned);
    }
    expect(ends[0]?.planned).toBeGreaterThan(100);
    expect(ends[1]?.planned).toBeGreaterThan((ends[0]?.planned ?? 0) + 27);
    expect(ends[1]?.earliest).toBeLessThan(ends[0]?.planned ?? 0);
    await resume(app.ctx, { kind: 'VOLUME', name: 'HELD' });
  });

  test('a request whose files are all there waits for nothing', async () => {
    gate.open();
    const id = await makeRequest(app, { quota: 'ann', files: ['/busy'] });
    await waitFor('the file', async () => (await viewRequest(app, id)).state === 'COMPLETED');
    expect(await readWaiting(app, id)).toBeNull();
  });
});

test('who watches when a request will be done is told the range, and again when the plan has left it', async () => {
  const backend = createMemoryBackend();
  const reads = holdReads(backend);
  const app = await startApp({ backend, config: { drives: 1 } });
  try {
    await addQuota(app.ctx, 'ann', GB);
    await addTaped(app.ctx, backend, [
      { path: '/end/first', volume: 'E1', position: 1n },
      { path: '/end/second', volume: 'E2', position: 1n },
    ]);
    await makeRequest(app, { quota: 'ann', files: ['/end/first'] });
    await reads.begun();
    const id = await makeRequest(app, { quota: 'ann', files: ['/end/second'] });
    const query = 'subscription ($id: Int!) { requestEnd(id: $id) { requestId at end { earliest planned latest } } }';
    const client = openClient(app, false);
    const stream = subscribe<{ requestEnd: { end: Waiting['end'] } }>(client, { query, variables: { id } });
    const next = async () => (await stream.next()).value?.data?.requestEnd;
    expect(await next()).toMatchObject({ requestId: id, end: { planned: expect.any(String) } });
    await suspend(app.ctx, { kind: 'VOLUME', name: 'E2', mode: 'HELD', reason: 'cleaned' });
    expect(await next()).toMatchObject({ requestId: id, end: null });
    await resume(app.ctx, { kind: 'VOLUME', name: 'E2' });
    expect(await next()).toMatchObject({ requestId: id, end: { planned: expect.any(String) } });
    reads.open();
    const last = await stream.next(); // that nothing is left to wait for, or the end already
    expect(last.done || (await stream.next()).done).toBe(true);
  } finally {
    await app.close();
  }
});

test('volumes are given a medium, all or none, and a medium that is not known is refused', async () => {
  const app = await startApp();
  const run = (...args: string[]) => runCli(['volume', ...args], { env: { DATABASE_URL: app.databaseUrl } });
  try {
    await addFiles(app.ctx, [
      { path: '/1', volume: 'M1', size: 10n },
      { path: '/2', volume: 'M2', size: 20n },
    ]);
    expect(await run('set', 'M1', 'M3', '--medium', 'lto-8')).toMatchObject({
      code: 1,
      stderr: 'tapegate: there is no volume "M3"\n',
    });
    expect(await run('set', 'M1', '--medium', 'clay')).toMatchObject({
      code: 2,
      stderr: 'tapegate: --medium must be one of lto-8, lto-9, linear, not "clay"\n',
    });
    expect(await run('set', '--medium', 'lto-8')).toMatchObject({ code: 2, stderr: 'tapegate: give names or --all\n' });
    expect((await run('list', '--json')).stdout).not.toContain('lto');
    expect((await run('set', 'M2', '--medium', 'lto-9')).stdout).toBe('1 volume is of the medium lto-9\n');
    const { stdout } = await run('list', '--json');
    expect(
      stdout
        .split('\n')
        .slice(0, -1)
        .map((line) => JSON.parse(line)),
    ).toEqual([
      { name: 'M1', library: 'directory', medium: 'linear', files: 1, bytes: 10 },
      { name: 'M2', library: 'directory', medium: 'lto-9', files: 1, bytes: 20 },
    ]);
  } finally {
    await cleanUp();
    await app.close();
  }
});
