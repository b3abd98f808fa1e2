/** The doctor's findings that need only the database, by GraphQL: pages, repair, and single checks. */
import { beforeEach, expect, test } from 'vitest';
import { recordMeasurements, setDisk } from '../../src/domain/disks/disks.js';
import { type FindingCursor, listFindings, rowKinds } from '../../src/domain/doctor/rows.js';
import { addFiles, addQuota } from '../support/factories.js';
import { askData, type Connection, PAGE_INFO } from '../support/graphql.js';
import { request } from '../support/http.js';
import { lock, waitForBlocked } from '../support/locks.js';
import { mutate } from '../support/payloads.js';
import { emptyTables } from '../support/tables.js';
import { useApp } from '../support/use-app.js';
import { waitFor } from '../support/wait.js';

const app = useApp();
beforeEach(() => emptyTables(app.ctx));

interface Node {
  kind: string;
  object: string;
  isRepaired: boolean;
  needsHost: boolean;
}

const FIELDS = 'kind object isRepaired needsHost';

async function readPage(args: string): Promise<Connection<Node>> {
  const query = `{ doctorFindings(${args}) { edges { cursor node { ${FIELDS} } } ${PAGE_INFO} } }`;
  return (await askData<{ doctorFindings: Connection<Node> }>(app, query)).doctorFindings;
}

const describeFinding = ({ kind, object, isRepaired, needsHost }: Node) =>
  `${kind} ${object}${isRepaired ? ' repaired' : ''}${needsHost ? ' on a host' : ''}`;

/**
 * Adds a disk, three quotas with wrong charges, two files at RESTORING without a recall, and a restored file that no
 * request contains.
 */
async function plant(): Promise<void> {
  for (const user of ['ann', 'ben', 'cem']) await addQuota(app.ctx, user, 10n ** 9n);
  await app.ctx.db.pool.query('UPDATE quota SET used = 5');
  const { id } = await setDisk(app.ctx, { mountpoint: '/mnt/r', size: 10n ** 9n });
  await addFiles(app.ctx, [{ path: '/r/1' }, { path: '/r/2' }, { path: '/r/3' }]);
  await app.ctx.db.pool.query(`UPDATE tape_file SET stage = 'RESTORING'`);
  await app.ctx.db.pool.query(`UPDATE tape_file SET stage = 'RESTORED', disk_id = $1 WHERE path = '/r/3'`, [id]);
}

const repairable = [
  'disk-used /mnt/r',
  'quota-used user ann',
  'quota-used user ben',
  'quota-used user cem',
  'restoring-without-recall /r/1',
  'restoring-without-recall /r/2',
];
const planted = [...repairable, 'restored-without-request /r/3 on a host'];

test.each([1, 2, 7])('pages of %s contain each finding once, in order', async (first) => {
  await plant();
  const found: string[] = [];
  for (let after: string | null = null; ; ) {
    const page: Connection<Node> = await readPage(`first: ${first}${after === null ? '' : `, after: "${after}"`}`);
    found.push(...page.edges.map(({ node }) => describeFinding(node)));
    expect(page.edges.length).toBeLessThanOrEqual(first);
    if (!page.pageInfo.hasNextPage) break;
    after = page.pageInfo.endCursor;
  }
  expect(found).toEqual(planted);
});

test('a page ends when its time is over, and the next one continues', async () => {
  await plant();
  const found: string[] = [];
  let pages = 0;
  for (let after: FindingCursor | undefined; ; pages++) {
    const page = await listFindings(app.ctx, { after, limit: 100, ms: 0 });
    found.push(...page.findings.map(describeFinding));
    after = page.next;
    if (!after) break;
  }
  expect(found).toEqual(planted);
  expect(pages).toBeGreaterThanOrEqual(rowKinds.length);
});

test('findings are repaired in pages if only rows are wrong, and the audit records their kinds', async () => {
  await plant();
  const found: string[] = [];
  for (let after: string | null = null; ; ) {
    type Repaired = { next: string | null; findings: Node[] };
    const repaired = `repaired { next findings { ${FIELDS} } }`;
    const { next, findings }: Repaired = await mutate(app, 'repairFindings', { first: 4, after }, repaired);
    found.push(...findings.map(describeFinding));
    if (next === null) break;
    after = next;
  }
  expect(found).toEqual([...repairable.map((each) => `${each} repaired`), ...planted.slice(-1)]);
  expect((await readPage('first: 10')).edges.map(({ node }) => describeFinding(node))).toEqual(planted.slice(-1));
  const { rows } = await app.ctx.db.pool.query(
    `SELECT who, result, given - 'after' AS given FROM audit WHERE operation = 'repairFindings' ORDER BY id`,
  );
  const done = (given: object) => ({ who: 'operator', result: 'DONE', given });
  const begun = { who: 'operator', result: 'BEGUN', given: {} };
  expect(rows).toEqual([
    begun,
    done({ found: 4, repaired: 4, kinds: ['disk-used', 'quota-used'] }),
    begun,
    done({ found: 3, repaired: 2, kinds: ['restoring-without-recall', 'restored-without-request'] }),
  ]);
});

test('the result counts what was checked, and names unchecked disks with the hosts of their engines', async () => {
  const read = '{ doctorFindings(first: 0) { notExamined examined { quotas requests requestFiles recalls disks } } }';
  const examined = { quotas: 0, requests: 0, requestFiles: '0', recalls: 0, disks: 0 };
  expect(await askData(app, read)).toEqual({ doctorFindings: { notExamined: null, examined } });
  const { id } = await setDisk(app.ctx, { mountpoint: '/mnt/0', size: 1n });
  for (let n = 1; n < 30; n++) await setDisk(app.ctx, { mountpoint: `/mnt/${n}`, size: 1n });
  for (const host of ['tape2', 'tape1'])
    await recordMeasurements(app.ctx, host, [{ diskId: id, free: 1n, problem: null }]);
  await addQuota(app.ctx, 'ann', 1n);
  const { doctorFindings } = await askData<{ doctorFindings: { notExamined: string; examined: object } }>(app, read);
  expect(doctorFindings.examined).toEqual({ ...examined, quotas: 1, disks: 30 });
  expect(doctorFindings.notExamined).toMatch(
    /^disks not checked on this host: \/mnt\/0 \(tape1, tape2\), \/mnt\/1, .*, and more; run "tapegate doctor", with DATABASE_URL set, on a host that mounts these disks$/,
  );
  expect(doctorFindings.notExamined.match(/\/mnt\/\d+/g)).toHaveLength(20);
});

test('a check ends when its client disconnects', async () => {
  const check = '{ doctorFindings { edges { cursor } } }';
  const unlock = await lock(app, 'LOCK TABLE restore_disk IN ACCESS EXCLUSIVE MODE');
  try {
    const leaving = new AbortController();
    const call = { headers: { 'Content-Type': 'application/json' }, body: { query: check }, signal: leaving.signal };
    const ended = expect(request(app, '/graphql', call)).rejects.toThrow();
    await waitForBlocked(app, 1);
    leaving.abort();
    await ended;
    const waits = `SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`;
    await waitFor('the end of the statement', async () => (await app.ctx.db.pool.query(waits)).rowCount === 0);
  } finally {
    await unlock();
  }
});
