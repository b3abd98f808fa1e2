import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import { startApp, type TestApp } from '../support/app.js';
import { addFiles, addQuota } from '../support/factories.js';
import { askData } from '../support/graphql.js';
import { makeRequest, post, put } from '../support/rest.js';
import { dumpTables, keepTables } from '../support/tables.js';

let now: string;
let app: TestApp;
let putBack: () => Promise<void>;
beforeAll(async () => {
  app = await startApp({ now: () => now });
  await fill();
  putBack = await keepTables(app.ctx);
});
afterAll(() => app.close());

/** Request 1 lives, 2 has ended, both alice's. */
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

/** The same data for each of the two. */
async function arrange(): Promise<void> {
  now = '2026-11-21T12:00:00.5';
  await putBack();
}

/** How it ended: the id of the request, or what the refusal says, with the names of GraphQL. */
type Outcome = { id: number } | { kind: string; message: string };

const CONTRACT_NAMES: Record<string, string> = {
  pattern: 'patterns',
  notifyOnFirstFile: 'notify_on_first_file',
  notifyOnLastFile: 'notify_on_last_file',
};

type Fields = Record<string, unknown>;

async function throughRest({ id, ...fields }: Fields): Promise<Outcome> {
  const body = Object.fromEntries(Object.entries(fields).map(([name, value]) => [CONTRACT_NAMES[name] ?? name, value]));
  const answer = id === undefined ? await post(app, body) : await put(app, id as number, body);
  const [object] = answer.body as [{ req_id: number; error: string }];
  if (answer.status === 200) return { id: object.req_id };
  return { kind: String(answer.status), message: object.error };
}

/** The status that REST has for each type of failure. */
const STATUSES: Record<string, string> = {
  InvalidInput: '400',
  UnknownUser: '403',
  QuotaExceeded: '403',
  LimitReached: '403',
  WrongQuota: '403',
  NotFound: '404',
};

async function throughGraphql(input: Fields): Promise<Outcome> {
  const [field, type] =
    'id' in input ? ['updateRequest', 'UpdateRequestInput'] : ['createRequest', 'CreateRequestInput'];
  const query = `mutation ($input: ${type}!) {
    result: ${field}(input: $input) { __typename ... on Request { requestId } ... on Failure { message } } }`;
  type Result = { __typename: string; requestId: number; message: string };
  const { result } = await askData<{ result: Result }>({ url: app.url }, query, { input });
  if (result.__typename === 'Request') return { id: result.requestId };
  const message = Object.entries(CONTRACT_NAMES).reduce(
    (words, [name, contractName]) => words.replace(new RegExp(`^${name} `), `${contractName} `),
    result.message,
  );
  return { kind: String(STATUSES[result.__typename]), message };
}

beforeEach(arrange);

/** A create, or, with an id, an update; and how it must end. */
const cases: [name: string, input: Fields, outcome: Outcome | { kind: string; message: RegExp }][] = [
  ['a pattern', { quota: 'alice', pattern: '/a/' }, { id: 3 }],
  ['a pattern of wildcards', { quota: 'alice', pattern: '100%_' }, { id: 3 }],
  ['a pattern that matches nothing', { quota: 'bob', pattern: 'A/' }, { id: 3 }],
  ['a list of files', { quota: 'alice', files: ['/x', '/a/one.nc', '/x', '/a/two.nc'] }, { id: 3 }],
  ['a pattern beside an empty list', { quota: 'alice', pattern: '/a/', files: [] }, { id: 3 }],
  ['a list beside an empty pattern', { quota: 'alice', pattern: '', files: ['/x'] }, { id: 3 }],
  ['nulls for all that may be missing', { ...blank(null), quota: 'alice', pattern: '/a/', files: null }, { id: 3 }],
  ['a date as retention', { quota: 'alice', pattern: '/a/', retention: '2026-12-24' }, { id: 3 }],
  [
    'a retention to the microsecond',
    { quota: 'alice', pattern: '/a/', retention: '2026-12-24T01:02:03.04' },
    { id: 3 },
  ],
  ['a label', { quota: 'alice', pattern: '/a/', label: 'Größe 🧲' }, { id: 3 }],
  ['an empty label', { quota: 'alice', files: ['/b', '/a'], label: '' }, { id: 3 }],
  ['two addresses', { quota: 'bob', pattern: '/q/', ...addresses('a@example.org', 'b@example.org') }, { id: 3 }],
  ["the quota's own addresses", { quota: 'alice', pattern: '/a/', ...addresses('', '') }, { id: 3 }],
  ['the address of a quota without one', { quota: 'bob', pattern: '/q/', ...addresses('', null) }, { id: 3 }],
  ['files that fill the quota', { quota: 'bob', files: ['/a/one.nc', '/x'] }, { id: 3 }],
  ['neither pattern nor files', { quota: 'alice' }, refusal(400, /^patterns or files must be given, and neither is$/)],
  ['both', { quota: 'alice', pattern: 'a', files: ['/a'] }, refusal(400, /^patterns and files exclude each other/)],
  ['a user nobody knows', { quota: 'nobody', pattern: '/a/' }, refusal(403, /^there is no quota for user "nobody"$/)],
  ['an empty user', { quota: '', pattern: '/a/' }, refusal(403, /^there is no quota for user ""$/)],
  ['a user with NUL', { quota: 'a\0', pattern: '/a/' }, refusal(400, /^quota must not hold the character NUL/)],
  [
    'more than the quota',
    { quota: 'bob', pattern: '/a/' },
    refusal(403, /: 2001 bytes are requested, and 2000 of its 2000 bytes are available$/),
  ],
  [
    'more than is left',
    { quota: 'alice', pattern: '.nc' },
    refusal(403, /8001 bytes are requested, and 7999 of its 10000 bytes are available/),
  ],
  [
    'a past retention',
    { quota: 'alice', pattern: 'a', retention: '2026-11-21' },
    refusal(400, /^retention must be in the/),
  ],
  [
    'a label of two lines',
    { quota: 'alice', pattern: 'a', label: 'a\nb' },
    refusal(400, /^label must not hold control/),
  ],
  ['a long label', { quota: 'alice', pattern: 'a', label: 'x'.repeat(2001) }, refusal(400, /^label must have at most/)],
  ['a long pattern', { quota: 'alice', pattern: 'x'.repeat(2049) }, refusal(400, /^patterns must have at most 2048/)],
  [
    'a pattern with half a character',
    { quota: 'alice', pattern: '\ud800' },
    refusal(400, /^patterns must be valid Unicode/),
  ],
  [
    'a relative path',
    { quota: 'alice', files: ['/a', 'b'] },
    refusal(400, /^files has a path that does not begin with/),
  ],
  [
    'a path that climbs',
    { quota: 'alice', files: ['/a/../b'] },
    refusal(400, /^files has a path that has the part "\.\."/),
  ],
  ['an empty path', { quota: 'alice', files: [''] }, refusal(400, /^files has a path that does not begin with/)],
  [
    'no address',
    { quota: 'alice', pattern: 'a', ...addresses('a', null) },
    refusal(400, /^notify_on_first_file must be/),
  ],
  [
    'two in one',
    { quota: 'alice', pattern: 'a', ...addresses(null, 'a@b,c@d') },
    refusal(400, /^notify_on_last_file must/),
  ],

  ['an update of nothing', { id: 1, quota: 'alice' }, { id: 1 }],
  ['an update with nulls', { id: 1, quota: 'alice', label: null, retention: null }, { id: 1 }],
  ['an update of label and retention', { id: 1, quota: 'alice', label: 'new', retention: '2027-01-01' }, { id: 1 }],
  ['an update of the addresses', { id: 1, quota: 'alice', ...addresses('', null) }, { id: 1 }],
  [
    'an address that is due its mail at once',
    { id: 1, quota: 'alice', ...addresses('now@example.org', null) },
    { id: 1 },
  ],
  ['an update that ends', { id: 1, quota: 'alice', retention: '2026-11-21T12:00:00.5' }, { id: 1 }],
  ['an update that revives', { id: 2, quota: 'alice', retention: '2027-01-01' }, { id: 2 }],
  ['an update of what has ended', { id: 2, quota: 'alice', label: 'late' }, { id: 2 }],
  ['an update of no request', { id: 9, quota: 'alice' }, refusal(404, /^there is no request with id 9$/)],
  ['an update of request 0', { id: 0, quota: 'nobody' }, refusal(404, /^there is no request with id 0$/)],
  ['an update by another', { id: 1, quota: 'bob' }, refusal(403, /^request 1 belongs to quota "alice", not to "bob"$/)],
  ['an update by nobody', { id: 1, quota: 'nobody' }, refusal(403, /^there is no quota for user "nobody"$/)],
  ['an update by an empty user', { id: 1, quota: '' }, refusal(403, /^there is no quota for user ""$/)],
  ['an update with a bad label', { id: 1, quota: 'alice', label: '\r' }, refusal(400, /^label must not hold control/)],
  [
    'an update with no address',
    { id: 1, quota: 'alice', ...addresses('a\n@b', null) },
    refusal(400, /^notify_on_first/),
  ],
];

function blank(value: null) {
  return { retention: value, label: value, ...addresses(value, value) };
}

function addresses(notifyOnFirstFile: string | null, notifyOnLastFile: string | null) {
  return { notifyOnFirstFile, notifyOnLastFile };
}

function refusal(status: number, message: RegExp) {
  return { kind: String(status), message };
}

test.each(cases)('%s ends the same through REST and through GraphQL', async (_name, input, expected) => {
  const untouched = await dumpTables(app.ctx);
  const outcome = await throughRest(input);
  const stored = await dumpStable();
  const isTaken = 'id' in expected;
  expect(outcome).toEqual(isTaken ? expected : { ...expected, message: expect.stringMatching(expected.message) });
  if (!isTaken) expect(await dumpTables(app.ctx)).toEqual(untouched);

  await arrange();
  expect(await throughGraphql(input)).toEqual(outcome);
  expect(await dumpStable()).toEqual(stored);
});

/** All tables, without what is drawn by lot or told by the clock of the database. */
async function dumpStable(): Promise<Record<string, string[]>> {
  const dump = await dumpTables(app.ctx);
  const chance = /"(message_id|at|transaction_id)":("[^"]*"|\d+)/;
  const stable = (rows: string[]) => rows.map((row) => row.replace(chance, '"$1":"…"'));
  return Object.fromEntries(Object.entries(dump).map(([table, rows]) => [table, stable(rows)]));
}

test('a request that is overdue leaves its room to both, though nobody has noticed', async () => {
  const input = { quota: 'alice', pattern: '.nc' };
  now = '2026-11-25T10:00:00.000007';
  const outcome = await throughRest(input);
  const stored = await dumpStable();
  await arrange();
  now = '2026-11-25T10:00:00.000007';
  expect([outcome, await throughGraphql(input)]).toEqual([{ id: 3 }, { id: 3 }]);
  expect(await dumpStable()).toEqual(stored);
});
