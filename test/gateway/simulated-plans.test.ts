/** Simulated plans, the recalls of a volume, and a volume's page, over GraphQL and without an engine. */
import { beforeEach, describe, expect, test } from 'vitest';
import { createRequest } from '../../src/domain/requests/create.js';
import { addFiles, addQuota } from '../support/factories.js';
import { askData, type Connection } from '../support/graphql.js';
import { cancel } from '../support/mutations.js';
import { resume, suspend } from '../support/suspend.js';
import { useApp } from '../support/use-app.js';

const GB = 10n ** 9n;
const sql = (text: string) => app.ctx.db.pool.query(text);

const app = useApp({}, async () => {
  await addQuota(app.ctx, 'ann', 10_000n * GB);
  await addQuota(app.ctx, 'bob', 10_000n * GB);
  await addFiles(app.ctx, [
    ...['A', 'B', 'C', 'D'].map((name) => ({
      path: `/p/${name}`,
      volume: `V${name}`,
      size: (name === 'A' ? 50n : 100n) * GB,
    })),
    { path: '/p/A2', volume: 'VA', size: GB, position: 9n },
  ]);
  await createRequest(app.ctx, { quota: 'ann', pattern: '/p/' });
  await createRequest(app.ctx, { quota: 'bob', files: ['/p/A'] });
});

beforeEach(async () => {
  await sql(`UPDATE recall SET state = 'WAITING', drive_id = NULL, started_at = NULL, epoch = NULL`);
  await sql('DELETE FROM drive');
  await sql(`INSERT INTO drive (name, engine_id, lease_until) SELECT 'drive-' || n, gen_random_uuid(), timezone('utc', now()) + interval '10 minutes'
    FROM generate_series(1, 2) AS n`);
});

interface Outcome {
  driveCount: number;
  mountCount: number;
  emptyAt: string | null;
  longestWaitSeconds: number | null;
  filesBlocked: number;
  bytesBlocked: string;
  filesUnplanned: number;
}
interface Read {
  driveName: string | null;
  startsAt: string | null;
  endsAt: string | null;
  problem: string | null;
}
interface Comparison {
  at: string;
  present: Outcome;
  changed: Outcome;
  volumes: Connection<{ volumeName: string; fileCount: number; present: Read; changed: Read }>;
}

async function simulate(input: object, page = ''): Promise<{ comparison: Comparison; errors: { message: string }[] }> {
  const outcome = 'driveCount mountCount emptyAt longestWaitSeconds filesBlocked bytesBlocked filesUnplanned';
  const read = 'driveName startsAt endsAt problem';
  const query = `query ($input: SimulatePlanInput!) { simulatePlan(input: $input) { errors { __typename message } comparison {
    at present { ${outcome} } changed { ${outcome} }
    volumes${page} { totalCount pageInfo { hasNextPage endCursor } edges { node { volumeName fileCount present { ${read} } changed { ${read} } } } } } } }`;
  const { simulatePlan } = await askData<{ simulatePlan: { comparison: Comparison; errors: { message: string }[] } }>(
    app,
    query,
    { input },
  );
  return simulatePlan;
}

const secondsOf = (at: string, end: string | null) => (Date.parse(end ?? '') - Date.parse(at)) / 1000;

test('without changes, both plans are the present plan', async () => {
  const { comparison, errors } = await simulate({});
  expect(errors).toEqual([]);
  expect(comparison.changed).toEqual(comparison.present);
  expect(comparison.present).toMatchObject({ driveCount: 2, mountCount: 4, filesBlocked: 0, bytesBlocked: '0' });
  for (const { node } of comparison.volumes.edges) expect(node.changed).toEqual(node.present);
  interface Planned {
    queue: Connection<{ volumeName: string; driveName: string }>;
  }
  const { plan } = await askData<{ plan: Planned }>(
    app,
    '{ plan { queue { edges { node { volumeName driveName } } } } }',
  );
  expect(comparison.volumes.edges.map(({ node }) => [node.volumeName, node.present.driveName])).toEqual(
    plan.queue.edges.map(({ node }) => [node.volumeName, node.driveName]),
  );
});

test('without one of two drives, the queue takes about twice as long, and nothing changes', async () => {
  const { comparison } = await simulate({ suspend: [{ kind: 'DRIVE', name: 'drive-2' }] });
  const { at, present, changed } = comparison;
  expect(changed).toMatchObject({ driveCount: 1, mountCount: 4, filesBlocked: 0 });
  const slower = secondsOf(at, changed.emptyAt) / secondsOf(at, present.emptyAt);
  expect(slower).toBeGreaterThan(1.5);
  expect(slower).toBeLessThan(2.5);
  expect(changed.longestWaitSeconds).toBeGreaterThan(present.longestWaitSeconds ?? 0);
  expect(await askData(app, '{ suspensions { totalCount } plan { drives { isOpen } } }')).toEqual({
    suspensions: { totalCount: 0 },
    plan: { drives: [{ isOpen: true }, { isOpen: true }] },
  });
});

test('with added drives, the queue ends sooner', async () => {
  const { comparison } = await simulate({ addDrives: [{ libraryName: 'directory', driveCount: 2 }] });
  const { at, present, changed } = comparison;
  expect(changed.driveCount).toBe(4);
  expect(secondsOf(at, changed.emptyAt)).toBeLessThan(secondsOf(at, present.emptyAt));
  const drives = new Set(comparison.volumes.edges.map(({ node }) => node.changed.driveName));
  expect(drives).toEqual(new Set(['drive-1', 'drive-2', 'directory: new drive 1', 'directory: new drive 2']));
});

test('the files on a suspended volume cannot be recalled, and other volumes end sooner', async () => {
  const { comparison } = await simulate({ suspend: [{ kind: 'VOLUME', name: 'VA' }] });
  expect(comparison.present.filesBlocked).toBe(0);
  // two users wait for one of the two files
  expect(comparison.changed).toMatchObject({ filesBlocked: 3, bytesBlocked: String(101n * GB), mountCount: 3 });
  const suspended = comparison.volumes.edges.find(({ node }) => node.volumeName === 'VA')?.node;
  expect(suspended?.present.endsAt).not.toBeNull();
  expect(suspended?.changed).toEqual({
    ...{ driveName: null, startsAt: null, endsAt: null },
    problem: 'the volume is suspended',
  });
});

test('without the library, no file can be recalled', async () => {
  const { comparison } = await simulate({
    suspend: [{ kind: 'LIBRARY', name: 'directory' }],
    addDrives: [{ libraryName: 'directory', driveCount: 1 }],
  });
  expect(comparison.changed).toMatchObject({ driveCount: 0, emptyAt: null, longestWaitSeconds: null, filesBlocked: 6 });
});

test('the simulated plan is the plan that a real suspension leads to', async () => {
  const { comparison } = await simulate({ suspend: [{ kind: 'VOLUME', name: 'VB' }] });
  await suspend(app, { kind: 'VOLUME', name: 'VB', mode: 'DRAINING' });
  const { comparison: real } = await simulate({});
  await resume(app, 'VOLUME', 'VB');
  const { emptyAt, longestWaitSeconds, ...counts } = comparison.changed;
  expect(real.present).toMatchObject(counts);
  expect(secondsOf(real.at, real.present.emptyAt)).toBeCloseTo(secondsOf(comparison.at, emptyAt), 0);
  expect(longestWaitSeconds).not.toBeNull();
});

test('the volumes are paged in the order of the present queue', async () => {
  const whole = (await simulate({})).comparison.volumes.edges.map(({ node }) => node.volumeName);
  const { volumes } = (await simulate({}, '(first: 3)')).comparison;
  expect(volumes).toMatchObject({ totalCount: 4, pageInfo: { hasNextPage: true } });
  const rest = await simulate({}, `(first: 3, after: "${volumes.pageInfo.endCursor}")`);
  const paged = [...volumes.edges, ...rest.comparison.volumes.edges].map(({ node }) => node.volumeName);
  expect(paged).toEqual(whole);
});

const drive = (name: string) => ({ kind: 'DRIVE', name });

test.each([
  [{ suspend: [drive('drive-9')] }, 'there is no drive "drive-9": the drives are "drive-1", "drive-2"'],
  [{ suspend: [{ kind: 'VOLUME', name: 'VX' }] }, 'there is no volume "VX": the volumes are "VA", "VB", "VC", "VD"'],
  [{ suspend: [{ kind: 'LIBRARY', name: 'x' }] }, 'there is no library "x": the libraries are "directory"'],
  [{ addDrives: [{ libraryName: 'x', driveCount: 1 }] }, 'there is no library "x": the libraries are "directory"'],
  [{ suspend: [{ kind: 'USER', name: 'ann' }] }, 'suspend must contain only volumes, drives and libraries, not USER'],
  [{ addDrives: [{ libraryName: 'directory', driveCount: 0 }] }, 'driveCount must be 1 or more, not 0'],
  [{ addDrives: [{ libraryName: 'directory', driveCount: 101 }] }, 'addDrives must add at most 100 drives, not 101'],
  [
    { suspend: Array.from({ length: 1001 }, () => drive('drive-1')) },
    'suspend must contain at most 1000 objects, not 1001',
  ],
])('a change that names nothing, or too much, is rejected: %#', async (input, message) => {
  const { comparison, errors } = await simulate(input);
  expect(comparison).toBeNull();
  expect(errors.map((error) => error.message)).toEqual([message]);
});

describe('a drive that reads', () => {
  test('shows the users that the caller may see, and the suspension of its library', async () => {
    await sql(`UPDATE recall SET state = 'RUNNING', started_at = timezone('utc', now()), epoch = 0, checksum = '',
      drive_id = (SELECT id FROM drive WHERE name = 'drive-1') WHERE file_id = (SELECT id FROM tape_file WHERE path = '/p/A')`);
    await suspend(app, { kind: 'LIBRARY', name: 'directory', mode: 'DRAINING', reason: 'new belts' });
    const query = '{ plan { drives { name users suspension { kind mode reason } } } }';
    const suspension = { kind: 'LIBRARY', mode: 'DRAINING', reason: 'new belts' };
    expect(await askData(app, query)).toEqual({
      plan: {
        drives: [
          { name: 'drive-1', users: ['ann', 'bob'], suspension },
          { name: 'drive-2', users: [], suspension },
        ],
      },
    });
    await resume(app, 'LIBRARY', 'directory');
  });
});

describe('a volume', () => {
  test('shows its failures, its recalls with attempts and errors, and its failed verifications', async () => {
    await sql(
      `UPDATE volume SET failures = 2, failing_since = '2026-01-02', retry_at = '2026-01-03', problem = 'it squeaks' WHERE name = 'VA'`,
    );
    await sql(`UPDATE recall SET attempts = 2, earlier_tries = 1, error_class = 'MEDIA', error = 'bad block', not_before = '2026-01-04'
      WHERE file_id = (SELECT id FROM tape_file WHERE path = '/p/A2')`);
    await sql(`UPDATE recall SET error_class = 'SPACE', error = 'no room', not_before = 'infinity'
      WHERE file_id = (SELECT id FROM tape_file WHERE path = '/p/B')`);
    for (const path of ['/p/A', '/p/B'])
      await sql(
        `INSERT INTO verification (file_id, attempts, error_class, error, at) SELECT id, 3, 'PERMANENT', 'wrong bytes', '2026-01-05' FROM tape_file WHERE path = '${path}'`,
      );
    const recall = 'file { path } state attempts lastErrorClass lastError nextTryAt volume { name } drive { name }';
    const query = `query ($name: String!, $errors: Boolean) {
      volume(name: $name) { name failureCount failingSince nextTryAt problem filesWaiting }
      recalls(volume: $name, onlyWithErrors: $errors) { totalCount edges { node { ${recall} } } }
      verificationFailures(volume: $name) { totalCount edges { node { file { path } attempts error } } } }`;
    const failed = {
      ...{ file: { path: '/p/A2' }, state: 'WAITING', attempts: 3, lastErrorClass: 'MEDIA', lastError: 'bad block' },
      ...{ nextTryAt: '2026-01-04T00:00:00Z', volume: { name: 'VA' }, drive: null },
    };
    expect(await askData(app, query, { name: 'VA', errors: true })).toEqual({
      volume: {
        ...{ name: 'VA', failureCount: 2, problem: 'it squeaks', filesWaiting: 2 },
        ...{ failingSince: '2026-01-02T00:00:00Z', nextTryAt: '2026-01-03T00:00:00Z' },
      },
      recalls: { totalCount: 1, edges: [{ node: failed }] },
      verificationFailures: {
        totalCount: 1,
        edges: [{ node: { file: { path: '/p/A' }, attempts: 3, error: 'wrong bytes' } }],
      },
    });
    const all = await askData<{ recalls: Connection<{ lastError: string; nextTryAt: string | null }> }>(app, query, {
      name: 'VB',
    });
    expect(all.recalls).toMatchObject({ totalCount: 1, edges: [{ node: { lastError: 'no room', nextTryAt: null } }] });
  });

  test('shows the files that failed permanently in requests that have not ended, those of the newest request first', async () => {
    await sql(`UPDATE request_file SET state = 'FAILED', error_class = 'PERMANENT', error = 'no such block'
      WHERE file_id IN (SELECT id FROM tape_file WHERE path IN ('/p/A', '/p/B'))`);
    const { rows } = await sql('SELECT id FROM request ORDER BY id');
    const [first, second] = rows.map(({ id }: { id: number }) => id);
    const query =
      '{ failedFiles(volume: "VA") { totalCount edges { node { file { path } errorClass error request { requestId quota { user } } } } } }';
    const failed = { file: { path: '/p/A' }, errorClass: 'PERMANENT', error: 'no such block' };
    const ofAnn = { node: { ...failed, request: { requestId: first, quota: { user: 'ann' } } } };
    const ofBob = { node: { ...failed, request: { requestId: second, quota: { user: 'bob' } } } };
    expect(await askData(app, query)).toEqual({ failedFiles: { totalCount: 2, edges: [ofBob, ofAnn] } });
    expect(await askData(app, '{ failedFiles { totalCount } }')).toEqual({ failedFiles: { totalCount: 3 } });
    await cancel(app, Number(second));
    expect(await askData(app, query)).toEqual({ failedFiles: { totalCount: 1, edges: [ofAnn] } });
  });

  test('that does not exist is null, and has no recalls', async () => {
    const query = '{ volume(name: "none") { name } recalls(volume: "none") { totalCount } }';
    expect(await askData(app, query)).toEqual({ volume: null, recalls: { totalCount: 0 } });
  });
});
