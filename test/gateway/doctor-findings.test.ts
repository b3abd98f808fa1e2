/** What the doctor finds by rows alone, over GraphQL: page by page, mended, one look at a time, and given up with its reader. */
import pg from 'pg';
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import { setDisk } from '../../src/operations/disks/disks.js';
import { noteMeasurements } from '../../src/operations/disks/measurements.js';
import { type FindingPlace, listFindings, rowFaults } from '../../src/operations/doctor/rows.js';
import { startApp, type TestApp } from '../support/app.js';
import { addFiles, addQuota } from '../support/factories.js';
import { ask, askData, type Connection, PAGE_INFO } from '../support/graphql.js';
import { emptyTables } from '../support/tables.js';
import { waitFor } from '../support/wait.js';

let app: TestApp;
beforeAll(async () => {
  app = await startApp();
});
beforeEach(() => emptyTables(app.ctx));
afterAll(() => app.close());

interface Node {
  kind: string;
  thing: string;
  isRepaired: boolean;
  needsHost: boolean;
}

const FIELDS = 'kind thing isRepaired needsHost';

async function readPage(args: string): Promise<Connection<Node>> {
  const query = `{ doctorFindings(${args}) { edges { cursor node { ${FIELDS} } } ${PAGE_INFO} } }`;
  return (await askData<{ doctorFindings: Connection<Node> }>(app, query)).doctorFindings;
}

const tell = ({ kind, thing, isRepaired, needsHost }: Node) =>
  `${kind} ${thing}${isRepaired ? ' repaired' : ''}${needsHost ? ' on a host' : ''}`;

/** A disk and three quotas that are charged too much, two files that are restored without a copy, and one that nobody holds. */
async function plant(): Promise<void> {
  for (const user of ['ann', 'ben', 'cem']) await addQuota(app.ctx, user, 10n ** 9n);
  await app.ctx.db.pool.query('UPDATE quota SET used = 5');
  const { id } = await setDisk(app.ctx, { mountpoint: '/mnt/r', size: 10n ** 9n });
  await addFiles(app.ctx, [{ path: '/r/1' }, { path: '/r/2' }, { path: '/r/3' }]);
  await app.ctx.db.pool.query(`UPDATE tape_file SET stage = 'RESTORED'`);
  await app.ctx.db.pool.query(`UPDATE tape_file SET disk_id = $1 WHERE path = '/r/3'`, [id]);
}

const mendable = [
  'disk-used /mnt/r',
  'quota-used user ann',
  'quota-used user ben',
  'quota-used user cem',
  'restored-without-copy /r/1',
  'restored-without-copy /r/2',
];
const planted = [...mendable, 'restored-without-hold /r/3 on a host'];

test.each([1, 2, 7])('findings are read in pages of %s, each once and in order', async (first) => {
  await plant();
  const found: string[] = [];
  for (let after: string | null = null; ; ) {
    const page: Connection<Node> = await readPage(`first: ${first}${after === null ? '' : `, after: "${after}"`}`);
    found.push(...page.edges.map(({ node }) => tell(node)));
    expect(page.edges.length).toBeLessThanOrEqual(first);
    if (!page.pageInfo.hasNextPage) break;
    after = page.pageInfo.endCursor;
  }
  expect(found).toEqual(planted);
});

test('a page goes on right after any of its findings', async () => {
  await plant();
  const { edges } = await readPage('first: 10');
  for (const [index, { cursor }] of edges.entries()) {
    const rest = await readPage(`after: "${cursor}"`);
    expect(rest.edges.map(({ node }) => tell(node))).toEqual(planted.slice(index + 1));
  }
});

test('a page that has had its time ends where it is, and the next ones go on', async () => {
  await plant();
  const found: string[] = [];
  let pages = 0;
  for (let after: FindingPlace | undefined; ; pages++) {
    const page = await listFindings(app.ctx, { after, limit: 100, ms: 0 });
    found.push(...page.findings.map(tell));
    after = page.next;
    if (!after) break;
  }
  expect(found).toEqual(planted);
  expect(pages).toBeGreaterThanOrEqual(rowFaults.length);
});

test('faults are mended a page at a time, as far as rows are what is wrong, and it is audited by their kinds', async () => {
  await plant();
  const found: string[] = [];
  for (let after: string | null = null; ; ) {
    const query = `mutation ($after: String) { result: repairFindings(first: 4, after: $after) {
      ... on RepairedFindings { next findings { ${FIELDS} } } } }`;
    type Answer = { result: { next: string | null; findings: Node[] } };
    const { result }: Answer = await askData<Answer>(app, query, { after });
    found.push(...result.findings.map(tell));
    if (result.next === null) break;
    after = result.next;
  }
  expect(found).toEqual([...mendable.map((each) => `${each} repaired`), ...planted.slice(-1)]);
  expect((await readPage('first: 10')).edges.map(({ node }) => tell(node))).toEqual(planted.slice(-1));
  const { rows } = await app.ctx.db.pool.query(
    `SELECT who, result, given - 'after' AS given FROM audit WHERE operation = 'repairFindings' ORDER BY id`,
  );
  const done = (given: object) => ({ who: 'operator', result: 'DONE', given });
  const begun = { who: 'operator', result: 'BEGUN', given: {} };
  expect(rows).toEqual([
    begun,
    done({ found: 4, repaired: 4, kinds: ['disk-used', 'quota-used'] }),
    begun,
    done({ found: 3, repaired: 2, kinds: ['restored-without-copy', 'restored-without-hold'] }),
  ]);
});

test('what was looked at is counted, and the disks that were not are named with the hosts of their engines', async () => {
  const read = '{ doctorFindings(first: 0) { notLookedAt lookedAt { quotas requests holds recalls disks } } }';
  const lookedAt = { quotas: 0, requests: 0, holds: 0, recalls: 0, disks: 0 };
  expect(await askData(app, read)).toEqual({ doctorFindings: { notLookedAt: null, lookedAt } });
  const { id } = await setDisk(app.ctx, { mountpoint: '/mnt/0', size: 1n });
  for (let n = 1; n < 30; n++) await setDisk(app.ctx, { mountpoint: `/mnt/${n}`, size: 1n });
  for (const host of ['tape2', 'tape1'])
    await noteMeasurements(app.ctx, host, [{ diskId: id, free: 1n, problem: null }]);
  await addQuota(app.ctx, 'ann', 1n);
  const { doctorFindings } = await askData<{ doctorFindings: { notLookedAt: string; lookedAt: object } }>(app, read);
  expect(doctorFindings.lookedAt).toEqual({ ...lookedAt, quotas: 1, disks: 30 });
  expect(doctorFindings.notLookedAt).toMatch(
    /^not looked at here: \/mnt\/0 \(tape1, tape2\), \/mnt\/1, .*, and more; run "tapegate doctor" on a host that has them, with DATABASE_URL$/,
  );
  expect(doctorFindings.notLookedAt.match(/\/mnt\/\d+/g)).toHaveLength(20);
});

test('one look is under way at a time, and it is given up when its reader has gone', async () => {
  await plant();
  const other = new pg.Client({ connectionString: app.databaseUrl });
  await other.connect();
  try {
    await other.query('BEGIN; LOCK TABLE restore_disk IN ACCESS EXCLUSIVE MODE');
    const waiting = async () => {
      const { rows } = await app.ctx.db.pool.query(
        `SELECT count(*)::int AS n FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`,
      );
      return rows[0].n as number;
    };
    const gone = new AbortController();
    const look = fetch(`${app.url}/graphql`, {
      method: 'POST',
      headers: { 'Content-Type': 'application/json', Authorization: `Bearer ${app.token}` },
      body: JSON.stringify({ query: '{ doctorFindings { edges { cursor } } }' }),
      signal: gone.signal,
    });
    const ended = expect(look).rejects.toThrow();
    await waitFor('the look', async () => (await waiting()) > 0);
    const asked = ['{ doctorFindings { edges { cursor } } }', 'mutation { repairFindings { __typename } }'];
    for (const query of asked) {
      const { errors } = await ask(app, query);
      expect(errors).toMatchObject([
        {
          message: expect.stringMatching(
            /^another look of the doctor is under way, for "operator", since .*: try again later$/,
          ),
          extensions: { code: 'UNAVAILABLE' },
        },
      ]);
    }
    gone.abort();
    await ended;
    await waitFor('the end of the look', async () => (await waiting()) === 0);
  } finally {
    await other.end();
  }
  await waitFor(
    'the next turn',
    async () => (await ask(app, '{ doctorFindings { edges { cursor } } }')).errors === undefined,
  );
});
