import { beforeEach, expect, test } from 'vitest';
import { addFiles, addQuota } from '../support/factories.js';
import { create, update } from '../support/mutations.js';
import { makeRequest, post, put } from '../support/rest.js';
import { dumpTables, keepTables } from '../support/tables.js';
import { useApp } from '../support/use-app.js';

let now: string;
let putBack: () => Promise<void>;
const app = useApp({ now: () => now }, async () => {
  await fill();
  putBack = await keepTables(app.ctx);
});

/** Adds request 1, which is live, and request 2, which has ended. Both belong to alice. */
async function fill(): Promise<void> {
  now = '2026-11-20T10:00:00.000007';
  await addQuota(app.ctx, 'alice', 10_000n);
  await addQuota(app.ctx, 'bob', 2000n, '');
  await addFiles(app.ctx, [
    { path: '/a/one.nc', size: 1000n },
    { path: '/a/two.nc', size: 1001n, stage: 'ONDISK' },
    { path: '/b/100%_three.nc', size: 6000n },
  ]);
  await makeRequest(app, { quota: 'alice', patterns: '/a/', label: 'mine', notify_on_last_file: 'last@example.org' });
  await makeRequest(app, { quota: 'alice', files: ['/a/one.nc', '/x'], retention: '2026-11-21' });
  now = '2026-11-21T12:00:00.5';
  await put(app, 2, { quota: 'alice', retention: '2026-11-21T12:00:00' });
}

/** Resets the database, so that each protocol starts from the same rows. */
async function arrange(): Promise<void> {
  now = '2026-11-21T12:00:00.5';
  await putBack();
}

/** The request's id, or the status and message of the refusal. Field names are those of REST. */
type Outcome = { id: number } | { kind: string; message: string };

const CONTRACT_NAMES: Record<string, string> = {
  pattern: 'patterns',
  notifyOnFirstFile: 'notify_on_first_file',
  notifyOnLastFile: 'notify_on_last_file',
};

type Fields = Record<string, unknown>;

async function throughRest({ requestId: id, ...fields }: Fields): Promise<Outcome> {
  const body = Object.fromEntries(Object.entries(fields).map(([name, value]) => [CONTRACT_NAMES[name] ?? name, value]));
  const answer = id === undefined ? await post(app, body) : await put(app, id as number, body);
  const [object] = answer.body as [{ req_id: number; error: string }];
  if (answer.status === 200) return { id: object.req_id };
  return { kind: String(answer.status), message: object.error };
}

/** REST status of each type of failure. */
const STATUSES: Record<string, string> = {
  InvalidInput: '400',
  UnknownUser: '403',
  QuotaExceeded: '403',
  LimitReached: '403',
  WrongQuota: '403',
  NotFound: '404',
};

async function throughGraphql(input: Fields): Promise<Outcome> {
  const { quota, ...rest } = input;
  const {
    __typename,
    requestId,
    message: given = '',
  } = 'requestId' in input
    ? await update({ url: app.url }, { ...rest, expectedQuota: quota })
    : await create({ url: app.url }, input);
  if (__typename === 'Request') return { id: requestId };
  const message = Object.entries(CONTRACT_NAMES).reduce(
    (words, [name, contractName]) => words.replace(new RegExp(`^${name} `), `${contractName} `),
    given,
  );
  return { kind: String(STATUSES[__typename]), message };
}

beforeEach(arrange);

const TWO_ADDRESSES = { notifyOnFirstFile: 'a@example.org', notifyOnLastFile: 'b@example.org' };
const NO_ADDRESSES = { notifyOnFirstFile: null, notifyOnLastFile: null };
const OWN_ADDRESSES = { notifyOnFirstFile: '', notifyOnLastFile: '' };
const NULLS = { retention: null, label: null, files: null, ...NO_ADDRESSES };
const LATER = '2026-12-24T01:02:03.04';

/**
 * Inputs that create a request or, with a `requestId`, update a request, and the expected id or status. support/bad-writes.ts
 * contains bad values of single fields.
 */
const cases: [name: string, input: Fields, expected: number | string][] = [
  ['a pattern of wildcards', { quota: 'alice', pattern: '100%_' }, 3],
  ['a list of files', { quota: 'alice', files: ['/x', '/a/one.nc', '/x', '/a/two.nc'] }, 3],
  ['a pattern with an empty list', { quota: 'alice', pattern: '/a/', files: [] }, 3],
  ['a list with an empty pattern', { quota: 'alice', pattern: '', files: ['/x'] }, 3],
  ['null for all optional fields', { ...NULLS, quota: 'alice', pattern: '/a/' }, 3],
  ['a retention and a label', { quota: 'alice', pattern: '/a/', retention: LATER, label: 'Größe 🧲' }, 3],
  ['an empty label', { quota: 'alice', files: ['/b', '/a'], label: '' }, 3],
  ['two addresses', { quota: 'bob', pattern: '/q/', ...TWO_ADDRESSES }, 3],
  ["the quota's own addresses", { quota: 'alice', pattern: '/a/', ...OWN_ADDRESSES }, 3],
  ['the address of a quota without one', { quota: 'bob', pattern: '/q/', ...OWN_ADDRESSES }, 3],
  ['neither pattern nor files', { quota: 'alice' }, '400'],
  ['an unknown user', { quota: 'nobody', pattern: '/a/' }, '403'],
  ['more than the quota', { quota: 'bob', pattern: '/a/' }, '403'],
  ['a bad label', { quota: 'alice', pattern: 'a', label: 'a\nb' }, '400'],
  ['an update of nothing', { requestId: 1, quota: 'alice' }, 1],
  ['an update with nulls', { requestId: 1, quota: 'alice', label: null, retention: null }, 1],
  ['an update of label and retention', { requestId: 1, quota: 'alice', label: 'new', retention: LATER }, 1],
  ['an update of the addresses', { requestId: 1, quota: 'alice', ...OWN_ADDRESSES, notifyOnLastFile: null }, 1],
  ['an address whose email is due', { requestId: 1, quota: 'alice', notifyOnFirstFile: 'now@example.org' }, 1],
  ['an update that ends', { requestId: 1, quota: 'alice', retention: '2026-11-21T12:00:00.5' }, 1],
  ['an update that revives', { requestId: 2, quota: 'alice', retention: '2027-01-01' }, 2],
  ['an update of an ended request', { requestId: 2, quota: 'alice', label: 'late' }, 2],
  ['an update of no request', { requestId: 9, quota: 'alice' }, '404'],
  ['an update by another', { requestId: 1, quota: 'bob' }, '403'],
];

test.each(cases)(
  '%s has the same outcome and stores the same by REST and by GraphQL',
  async (_name, input, expected) => {
    const untouched = await dumpTables(app.ctx);
    const outcome = await throughRest(input);
    const stored = await dumpStable();
    expect('id' in outcome ? outcome.id : outcome.kind).toBe(expected);
    if (!('id' in outcome)) expect(await dumpTables(app.ctx)).toEqual(untouched);

    await arrange();
    expect(inContractWords(await throughGraphql(input))).toEqual(outcome);
    expect(await dumpStable()).toEqual(stored);
  },
);

/** Replaces a message that REST words differently, because the contract fixes its words. */
const inContractWords = (outcome: object) =>
  'message' in outcome
    ? {
        ...outcome,
        message: String(outcome.message).replace(
          /^there is no request (\d+), or you are not allowed to see it$/,
          'there is no request with id $1',
        ),
      }
    : outcome;

/** Returns all tables without random values and without times of the database's clock. */
async function dumpStable(): Promise<Record<string, string[]>> {
  const dump = await dumpTables(app.ctx);
  const chance = /"(message_id|at|transaction_id)":("[^"]*"|\d+)/;
  const stable = (rows: string[]) => rows.map((row) => row.replace(chance, '"$1":"…"'));
  return Object.fromEntries(Object.entries(dump).map(([table, rows]) => [table, stable(rows)]));
}

test('an overdue request frees its quota by REST and by GraphQL, before its end was recorded', async () => {
  const input = { quota: 'alice', pattern: '.nc' };
  now = '2026-11-25T10:00:00.000007';
  const outcome = await throughRest(input);
  const stored = await dumpStable();
  await arrange();
  now = '2026-11-25T10:00:00.000007';
  expect([outcome, await throughGraphql(input)]).toEqual([{ id: 3 }, { id: 3 }]);
  expect(await dumpStable()).toEqual(stored);
});
