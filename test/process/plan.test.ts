/** Estimates and the plan, as users and operators see them over GraphQL and in the commands. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { secondsBetween } from '../../src/cli/terminal/times.js';
import { TapeError } from '../../src/core/errors.js';
import { setMedium } from '../../src/domain/catalogue/volumes.js';
import { setDisk } from '../../src/domain/disks/disks.js';
import { resume, suspend } from '../../src/domain/health/suspensions.js';
import { showPlan } from '../../src/domain/plan/plan.js';
import { ensureDrives } from '../../src/domain/recalls/drives.js';
import { startApp, type TestApp } from '../support/app.js';
import { readDisks } from '../support/engine-watch.js';
import { addFiles, addQuota, addTaped } from '../support/factories.js';
import { askData, type Edges } from '../support/graphql.js';
import { holdReads } from '../support/held-reads.js';
import { createMemoryLibrary } from '../support/memory-library.js';
import { runCli } from '../support/process.js';
import { viewRequest, waitForState } from '../support/request-view.js';
import { makeRequest } from '../support/rest.js';
import { openClient, subscribe } from '../support/streams.js';
import { createGate, waitFor } from '../support/wait.js';

const GB = 10n ** 9n;

let app: TestApp;

const run = (...args: string[]) => runCli(args, { env: { TAPEGATE_URL: app.url, TAPEGATE_TOKEN: app.token } });
const dryRun = (quota: string, pattern: string, ...more: string[]) =>
  run('request', '--quota', quota, '--pattern', pattern, '--dry-run', ...more);

interface Part {
  volumeName: string | null;
  queuePosition: number | null;
  reason: string;
  fileCount: number;
  explanation: string;
}
interface Waiting {
  fileCount: number;
  queuePosition: number | null;
  end: { earliest: string; planned: string; latest: string } | null;
}

async function readWaiting(id: number): Promise<(Waiting & { parts: Part[] }) | null> {
  type View = { request: { waiting: (Waiting & { parts: Edges<Part> }) | null } };
  const query = `query ($id: Int!) { request(requestId: $id) { waiting {
    fileCount queuePosition end { earliest planned latest }
    parts { edges { node { volumeName queuePosition reason fileCount explanation } } }
  } } }`;
  const { waiting } = (await askData<View>(app, query, { id })).request;
  return waiting && { ...waiting, parts: waiting.parts.edges.map(({ node }) => node) };
}

const ESTIMATE = `query ($input: CreateRequestInput!) { estimateRequest(input: $input) {
  errors { __typename message } estimate {
    fileCount bytes filesUnknown filesOnDisk bytesOnDisk filesOnTheirWay filesToRecall bytesToRecall filesWithoutPlace
    volumeCount mountCount volumesSuspended quotaSize quotaUsed quotaUsedAfter fitsQuota hasRoom end { earliest planned latest }
  } } }`;

interface EstimateAnswer {
  estimateRequest: { estimate: object | null; errors: object[] };
}

/** Returns the estimate, or the error. */
async function estimate(input: object): Promise<object | undefined> {
  const { estimateRequest } = await askData<EstimateAnswer>(app, ESTIMATE, { input });
  return estimateRequest.estimate ?? estimateRequest.errors[0];
}

describe('while no engine works', () => {
  beforeAll(async () => {
    app = await startApp();
    await addQuota(app.ctx, 'ann', 100n * GB);
    await addQuota(app.ctx, 'poor', GB);
    await addFiles(app.ctx, [
      { path: '/idle/1', size: 2n * GB, volume: 'I1' },
      { path: '/idle/2', size: GB, volume: 'I2' },
      { path: '/idle/disk', size: GB, volume: 'I2', stage: 'ONDISK' },
      { path: '/idle/lost', size: GB, volume: null, position: null },
      { path: '/primary/new', stage: null, verified: null },
      { path: '/primary/confirmed', stage: 'ONDISK' },
      { path: '/primary/restored', stage: 'RESTORED' },
      { path: '/primary/taped', stage: 'ONTAPE' },
    ]);
  });
  afterAll(() => app.close());

  test('an estimate counts files, bytes and mounts, and stores nothing', async () => {
    const files = ['/idle/1', '/idle/2', '/idle/disk', '/idle/lost', '/idle/unknown'];
    expect(await estimate({ quota: 'ann', files })).toMatchObject({
      fileCount: 4,
      bytes: '5000000000',
      filesUnknown: 1,
      filesOnDisk: 1,
      bytesOnDisk: '1000000000',
      filesOnTheirWay: 0,
      filesToRecall: 2,
      bytesToRecall: '3000000000',
      filesWithoutPlace: 1,
      volumeCount: 2,
      mountCount: 2,
      volumesSuspended: 0,
      quotaSize: '100000000000',
      quotaUsed: '0',
      quotaUsedAfter: '5000000000',
      fitsQuota: true,
      end: null, // no engine is running
    });
    expect((await app.ctx.db.pool.query('SELECT FROM request')).rows).toEqual([]);
  });

  test('an estimate rejects what a request would reject, and reports a quota that is too small', async () => {
    const pattern = '/idle';
    const rejected: [input: object, type: string, message: unknown][] = [
      [{ quota: 'nobody', pattern }, 'UnknownUser', 'there is no quota for user "nobody"'],
      [{ quota: 'ann' }, 'InvalidInput', 'pattern or files must be given'],
      [
        { quota: 'ann', pattern, retention: '2020-01-01' },
        'InvalidInput',
        expect.stringContaining('retention must be in the future: 2020-01-01T00:00:00 is not after '),
      ],
      [
        { quota: 'ann', pattern, maxFiles: 3 },
        'InvalidInput',
        expect.stringMatching(/^maxFiles is 3, but the request would contain 4 files; /),
      ],
    ];
    for (const [input, __typename, message] of rejected) expect(await estimate(input)).toEqual({ __typename, message });
    const poor = { fitsQuota: false, quotaUsedAfter: '5000000000' };
    expect(await estimate({ quota: 'poor', pattern })).toMatchObject(poor);
  });

  test('request --dry-run prints the estimate, and fails if the quota is too small', async () => {
    const { code, stdout } = await dryRun('ann', '/idle');
    expect({ code, lines: stdout.split('\n') }).toEqual({
      code: 0,
      lines: [
        'files       4, 5.00 GB',
        'on disk     1, 1.00 GB, 1 of them at their primary path',
        'from tape   2, 3.00 GB, on 2 volumes; 2 mounts',
        "no position 1: the catalogue does not contain the files' positions",
        'quota       ann: 0 bytes of 100 GB used, 5.00 GB with this request',
        'end         unknown: no engine has a drive in service',
        'nothing was requested',
        '',
      ],
    });
    const poor = await dryRun('poor', '/idle', '--json');
    expect(poor).toMatchObject({
      code: 1,
      stderr: expect.stringMatching(
        /^tapegate: the request does not fit in quota "poor": 5\.00 GB requested, 1\.00 GB of 1\.00 GB free; request fewer/,
      ),
    });
    expect(JSON.parse(poor.stdout)).toMatchObject({ fileCount: 4, fitsQuota: false });
  });

  test('a waiting request reports that no engine works, and which files have no position on tape', async () => {
    const id = await makeRequest(app, { quota: 'ann', patterns: '/idle' });
    expect(await readWaiting(id)).toMatchObject({
      ...{ fileCount: 3, queuePosition: null, end: null },
      parts: [
        { volumeName: null, reason: 'NO_POSITION', fileCount: 1 },
        { volumeName: 'I1', reason: 'NO_DRIVE', fileCount: 1 },
        { volumeName: 'I2', reason: 'NO_DRIVE', fileCount: 1 },
      ],
    });
    const { stdout } = await run('plan', String(id));
    expect(stdout).toContain('; end unknown: the catalogue does not contain the volume and position of the files\n');
    expect(stdout).toMatch(/^- +I1 +1 +2\.00 GB +- +no engine has a drive in service$/m);
    for (const [mode, reason, state] of [
      ['IMMEDIATE', 'its program is missing', 'suspended: its program is missing'],
      ['IMMEDIATE', '', 'suspended'],
      ['DRAINING', '', 'draining'],
    ] as const) {
      await suspend(app.ctx, { kind: 'LIBRARY', name: 'directory', mode, reason });
      expect((await readWaiting(id))?.parts.map(({ explanation }) => explanation)).toContain(
        `library directory is ${state}`,
      );
    }
    await resume(app.ctx, { kind: 'LIBRARY', name: 'directory' });
  });

  test('a request reports that all drives of its library are out of service', async () => {
    await ensureDrives(app.ctx, 2);
    const [draining, suspended] = [
      { name: 'drive-1', mode: 'DRAINING' },
      { name: 'drive-2', mode: 'IMMEDIATE' },
    ] as const;
    for (const drive of [draining, suspended]) await suspend(app.ctx, { kind: 'DRIVE', ...drive, reason: 'serviced' });
    const id = await makeRequest(app, { quota: 'ann', files: ['/idle/1'] });
    const why = 'all drives of library directory are suspended or draining';
    const { stdout } = await run('plan', String(id));
    expect(stdout).toContain(`1 file waits, 2.00 GB; end unknown: ${why}\n`);
    expect(stdout).toMatch(new RegExp(`^- +I1 +1 +2\\.00 GB +- +${why}$`, 'm'));
    expect((await dryRun('ann', '/idle/2')).stdout).toContain(`\nend         unknown: ${why}\n`);
    const plan = await run('plan');
    expect(plan.stdout).toMatch(/^drive-1 +- +draining\ndrive-2 +- +suspended$/m);
    for (const { name } of [draining, suspended]) await resume(app.ctx, { kind: 'DRIVE', name });
  });

  test('the plan shows users why a volume is suspended, and which of their users wait for it', async () => {
    for (const user of ['ann', 'cora']) {
      await addQuota(app.ctx, user, 100n * GB);
      await makeRequest(app, { quota: user, files: ['/idle/2'] });
    }
    await suspend(app.ctx, { kind: 'VOLUME', name: 'I2', mode: 'DRAINING', reason: 'it squeaks' });
    const id = await makeRequest(app, { quota: 'cora', files: ['/idle/2'] });
    const why = 'unknown: volume I2 is draining: it squeaks\n';
    expect((await run('plan', String(id))).stdout).toContain(why);
    expect((await dryRun('cora', '/idle/2')).stdout).toContain(why);
    expect((await run('plan')).stdout).toMatch(/^- +I2 +1 +1\.00 GB +ann, cora +- +- +- +draining: it squeaks$/m);
    const plan = await showPlan({ ...app.ctx, caller: { ...app.ctx.caller, reads: new Set(['cora']) } });
    expect(plan.volumes.find(({ volume }) => volume === 'I2')).toMatchObject({
      users: [{ user: 'cora', files: 1 }],
      reason: 'draining: it squeaks',
    });
    await resume(app.ctx, { kind: 'VOLUME', name: 'I2' });
  });

  test('an estimate counts the files that other live requests of the quota contain and charge', async () => {
    await addQuota(app.ctx, 'ben', 100n * GB);
    const id = await makeRequest(app, { quota: 'ben', files: ['/idle/1', '/idle/lost'] });
    const counted = async (quota: string) => {
      const query = `query ($input: CreateRequestInput!) {
        estimateRequest(input: $input) { estimate { filesAlsoRequested bytesAlsoRequested } } }`;
      const input = { quota, pattern: '/idle' };
      return (await askData<EstimateAnswer>(app, query, { input })).estimateRequest.estimate;
    };
    expect(await counted('ben')).toEqual({ filesAlsoRequested: 2, bytesAlsoRequested: '3000000000' });
    expect((await dryRun('ben', '/idle')).stdout).toContain(
      '\ncharged     2, 3.00 GB: these files are already charged to the quota for other requests\n',
    );
    const none = { filesAlsoRequested: 0, bytesAlsoRequested: '0' };
    expect(await counted('poor')).toEqual(none);
    await run('cancel', String(id));
    expect(await counted('ben')).toEqual(none);
  });

  test('files at their primary path are counted apart from restored copies', async () => {
    expect((await dryRun('ann', '/primary/')).stdout).toContain(
      '\non disk     3, 3.00 kB, 2 of them at their primary path\n',
    );
    expect((await dryRun('ann', '/primary/taped')).stdout).not.toContain('primary');
    const { stdout } = await run('request', '--quota', 'ann', '--pattern', '/primary/');
    const [, id = ''] =
      /^request (\d+): 4 files, 4\.00 kB, 2 of them at their primary path, kept until /.exec(stdout) ?? [];
    expect((await run('show', id)).stdout).toMatch(
      /\nON DISK +3 of 4 files, 3\.00 kB of 4\.00 kB, 2 of them at their primary path\n/,
    );
    const query = '{ tapeFiles(match: "/primary/") { edges { node { path isAtPrimaryPath restoredPath } } } }';
    const { tapeFiles } = await askData<{ tapeFiles: Edges<object> }>(app, query);
    const file = (name: string, isAtPrimaryPath: boolean) => ({
      node: { path: `/primary/${name}`, isAtPrimaryPath, restoredPath: null },
    });
    const files = [file('confirmed', true), file('new', true), file('restored', false), file('taped', false)];
    expect(tapeFiles.edges).toEqual(files);
  });
});

describe('while an engine works', () => {
  const library = createMemoryLibrary();
  const gate = createGate();

  beforeAll(async () => {
    const room = { name: 'disk', totalBytes: 1000n * GB, freeBytes: 1000n * GB, hasNoInodes: false };
    app = await startApp({ library, config: { drives: 1 }, engine: { readFileSystem: async () => room } });
    await setDisk(app.ctx, { mountpoint: app.restoreDir, size: 1000n * GB });
    for (const user of ['ann', 'ben']) await addQuota(app.ctx, user, 1000n * GB);
    library.onRead = async (volume) => {
      if (volume === 'BUSY') await gate.opened;
      if (volume === 'BAD') throw new TapeError('TRANSIENT', 'the arm is stuck');
    };
    await addTaped(app.ctx, library, [
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

  test('the plan shows the present and next work of the drive, and the position and a range for the end of each request', async () => {
    const bad = await makeRequest(app, { quota: 'ben', files: ['/bad'] });
    const failed = await waitFor('a failure', async () =>
      (await readWaiting(bad))?.parts.find(({ reason }) => reason === 'RETRY'),
    );
    expect(failed.explanation).toBe('the files are waiting for a retry after a failed attempt: the arm is stuck');
    const busy = await makeRequest(app, { quota: 'ann', files: ['/busy'] });
    await waitFor('a read', async () => library.log.some(({ what, volume }) => what === 'read' && volume === 'BUSY'));
    const many = await makeRequest(app, { quota: 'ann', patterns: '/many/' });
    const one = await makeRequest(app, { quota: 'ben', files: ['/one'] });
    await suspend(app.ctx, { kind: 'VOLUME', name: 'HELD', mode: 'IMMEDIATE', reason: 'it squeaks' });
    const held = await makeRequest(app, { quota: 'ben', files: ['/held'] });
    await app.ctx.db.pool.query(
      `UPDATE quota SET drive_seconds = CASE "user" WHEN 'ben' THEN 9000 ELSE 0 END, drive_seconds_at = $1`,
      [app.ctx.now()],
    );

    interface Queued {
      queuePosition: number | null;
      volumeName: string;
      fileCount: number;
      driveName: string | null;
      startsAt: string | null;
    }
    const { plan } = await askData<{ plan: { at: string; drives: object[]; queue: Edges<Queued> } }>(
      app,
      `{ plan { at drives { name isClaimed isOpen volumeName filesRunning }
        queue { edges { node { queuePosition volumeName fileCount driveName startsAt } } } } }`,
    );
    expect(plan.drives).toEqual([
      { name: 'drive-1', isClaimed: true, isOpen: true, volumeName: 'BUSY', filesRunning: 1 },
    ]);
    await suspend(app.ctx, { kind: 'DRIVE', name: 'drive-1', mode: 'DRAINING', reason: '' });
    expect((await run('plan')).stdout).toMatch(/^drive-1 .* reading BUSY: 1 file, .*, then suspended$/m);
    await resume(app.ctx, { kind: 'DRIVE', name: 'drive-1' });
    const queue = plan.queue.edges.map(({ node }) => node);
    const later = queue.filter(({ volumeName }) => volumeName !== 'BAD' && volumeName !== 'HELD');
    expect(queue.at(-1)).toMatchObject({ volumeName: 'HELD', fileCount: 1, queuePosition: null, startsAt: null });
    expect(later.map(({ volumeName, fileCount, driveName }) => ({ volumeName, fileCount, driveName }))).toEqual([
      { volumeName: 'MANY', fileCount: 12, driveName: 'drive-1' }, // ann has used less drive time
      { volumeName: 'ONE', fileCount: 1, driveName: 'drive-1' },
    ]);

    expect(await readWaiting(busy)).toMatchObject({ fileCount: 1, parts: [{ volumeName: 'BUSY', reason: 'READING' }] });
    expect(await readWaiting(held)).toMatchObject({
      ...{ end: null, queuePosition: null },
      parts: [{ volumeName: 'HELD', reason: 'VOLUME_SUSPENDED', explanation: 'the volume is suspended: it squeaks' }],
    });
    const [first, second] = [await readWaiting(many), await readWaiting(one)];
    expect(first).toMatchObject({ fileCount: 12, parts: [{ volumeName: 'MANY', reason: 'QUEUED', fileCount: 12 }] });
    expect(second?.queuePosition).toBe((first?.queuePosition ?? 0) + 1);
    // twelve files of 3 GB at 360 MB/s take 100 s plus locates; the second request then needs its own mount
    const ends = [first?.end, second?.end].map((end) => {
      const secondsTo = (time = '') => secondsBetween(plan.at, time) ?? Number.NaN;
      return { earliest: secondsTo(end?.earliest), planned: secondsTo(end?.planned), latest: secondsTo(end?.latest) };
    });
    for (const { earliest, planned, latest } of ends) {
      expect(planned).toBeGreaterThanOrEqual(earliest - 1);
      expect(latest).toBeGreaterThan(planned);
    }
    expect(ends[0]?.planned).toBeGreaterThan(100);
    expect(ends[1]?.planned).toBeGreaterThan((ends[0]?.planned ?? 0) + 27);
    await resume(app.ctx, { kind: 'VOLUME', name: 'HELD' });
  });

  test('a request whose files are on disk waits for nothing', async () => {
    gate.open();
    const id = await makeRequest(app, { quota: 'ann', files: ['/busy'] });
    await waitFor('the file', async () => (await viewRequest(app, id)).state === 'COMPLETED');
    expect(await readWaiting(id)).toBeNull();
  });
});

describe('while reads and room are held back', () => {
  const library = createMemoryLibrary();

  beforeAll(async () => {
    app = await startApp({ library, config: { drives: 1 } });
    await addQuota(app.ctx, 'ann', GB);
    await addTaped(app.ctx, library, [
      { path: '/end/first', volume: 'E1' },
      { path: '/end/second', volume: 'E2' },
      { path: '/room/a', volume: 'ROOM' },
      { path: '/room/b', volume: 'ROOM' },
    ]);
  });
  afterAll(() => app.close());

  test('a subscriber to the end of a request receives its range, and again when the plan changes', async () => {
    const reads = holdReads(library);
    await makeRequest(app, { quota: 'ann', files: ['/end/first'] });
    await reads.begun();
    const id = await makeRequest(app, { quota: 'ann', files: ['/end/second'] });
    const query =
      'subscription ($id: Int!) { requestEnd(requestId: $id) { requestId at end { earliest planned latest } } }';
    const client = openClient(app, false);
    const stream = subscribe<{ requestEnd: { end: Waiting['end'] } }>(client, { query, variables: { id } });
    const next = async () => (await stream.next()).value?.data?.requestEnd;
    expect(await next()).toMatchObject({ requestId: id, end: { planned: expect.any(String) } });
    await suspend(app.ctx, { kind: 'VOLUME', name: 'E2', mode: 'IMMEDIATE', reason: 'cleaned' });
    expect(await next()).toMatchObject({ requestId: id, end: null });
    await resume(app.ctx, { kind: 'VOLUME', name: 'E2' });
    expect(await next()).toMatchObject({ requestId: id, end: { planned: expect.any(String) } });
    reads.open();
    const last = await stream.next(); // the last estimate, with nothing left to wait for, or the end of the stream
    expect(last.done || (await stream.next()).done).toBe(true);
    await waitForState(app, id, 'COMPLETED');
  });

  test('a request beyond the room of the restore disks has no end, in its estimate and in the plan', async () => {
    const { used } = await readDisks(app);
    await setDisk(app.ctx, { mountpoint: app.restoreDir, size: used + 1500n });
    expect(await estimate({ quota: 'ann', pattern: '/room/' })).toMatchObject({ hasRoom: false, end: null });
    const planned = { planned: expect.any(String) };
    expect(await estimate({ quota: 'ann', pattern: '/room/a' })).toMatchObject({ hasRoom: true, end: planned });
    const { stdout } = await dryRun('ann', '/room/');
    expect(stdout).toContain('\nno room     files wait until the restore disks have enough free space\n');
    expect(stdout).toContain('\nend         unknown: no restore disk has room for all files\n');

    // a file with reserved room does not reduce the room for other files
    library.log.length = 0;
    const reads = holdReads(library);
    const id = await makeRequest(app, { quota: 'ann', patterns: '/room/a' });
    await reads.begun();
    const running = { hasRoom: true, bytesToRecall: '1000', end: planned };
    expect(await estimate({ quota: 'ann', pattern: '/room/a' })).toMatchObject(running);
    reads.open();
    await waitForState(app, id, 'COMPLETED');

    const beyond = await makeRequest(app, { quota: 'ann', patterns: '/room/' });
    const waiting = await waitFor('a file to wait for room', async () => {
      const now = await readWaiting(beyond);
      return now?.parts.length === 1 && now.parts[0]?.reason === 'SPACE' && now;
    });
    expect(waiting.end).toBeNull();
    const { plan } = await askData<{ plan: { queue: object } }>(
      app,
      '{ plan { queue(first: 9) { edges { node { queuePosition driveName startsAt endsAt problem } } } } }',
    );
    const problem = 'no restore disk has room for the files on the volume';
    expect(plan.queue).toMatchObject({
      edges: expect.arrayContaining([
        { node: { queuePosition: null, driveName: null, startsAt: null, endsAt: null, problem } },
      ]),
    });
    expect((await run('plan', String(beyond))).stdout).toContain(
      `request ${beyond}: 1 file waits, 1.00 kB; end unknown: no restore disk`,
    );
  });
});
