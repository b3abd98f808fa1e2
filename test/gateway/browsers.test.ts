/** What browsers may do here: each place of the gateway, asked with the headers that only browsers send. */
import { networkInterfaces } from 'node:os';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { startApp, startBeside, type TestApp } from '../support/app.js';
import { addQuota } from '../support/factories.js';
import { type Answer, sendAsIs } from '../support/http.js';

const LISTED = 'https://portal.example.org';
const PUBLIC = 'https://tapes.example.org';

let app: TestApp;
beforeAll(async () => {
  app = await startApp({
    config: { corsOrigins: [LISTED], publicUrl: `${PUBLIC}/below`, allowedHosts: ['tape_gate', '[2001:db8::7]'] },
  });
  await addQuota(app.ctx, 'alice', 1_000_000n);
});
afterAll(() => app.close());

interface Place {
  name: string;
  form: 'REST' | 'GraphQL' | 'other';
  method: string;
  target: string;
  headers?: Record<string, string>;
  body?: string;
  /** What it answers to those who may ask. */
  status: number;
}

const JSON_TYPE = { 'Content-Type': 'application/json' };
const EVENTS = { Accept: 'text/event-stream' };
const REST = '/tape_control/api/v1';
const request = JSON.stringify({ quota: 'alice', patterns: '/browsers/', label: 'a page' });
const mutation = `mutation { createRequest(input: { quota: "alice", pattern: "/browsers/" }) { __typename } }`;
const query = JSON.stringify({ query: '{ __typename }' });
const subscription = encodeURIComponent('subscription { requestProgress(id: 2147483647) { state } }');

const rest = (method: string, path: string, status: number, more: Partial<Place> = {}): Place => ({
  name: `REST ${method} ${path.split('?')[0]}${more.headers ? ` as ${more.headers['Content-Type']}` : ''}`,
  form: 'REST',
  method,
  target: `${REST}${path}`,
  status,
  ...more,
});
const graphql = (name: string, more: Partial<Place>): Place => ({
  name,
  form: 'GraphQL',
  method: 'POST',
  target: '/graphql',
  headers: JSON_TYPE,
  status: 200,
  ...more,
});

/** What changes something, or goes on for long: no page of another origin may ask for it in any way. */
const writes: Place[] = [
  ...['text/plain', 'application/x-www-form-urlencoded', 'multipart/form-data; boundary=x', 'application/json'].map(
    (type) => rest('POST', '/requests', 200, { headers: { 'Content-Type': type }, body: request }),
  ),
  rest('PUT', '/requests/2147483647', 404, { body: request }),
  rest('DELETE', '/requests/1', 405),
  graphql('GraphQL POST of a query', { body: query }),
  graphql('GraphQL POST of a mutation', { body: JSON.stringify({ query: mutation }) }),
  graphql('GraphQL POST to a stream', { target: '/graphql/stream', headers: { ...JSON_TYPE, ...EVENTS }, body: query }),
  graphql('a reservation', { method: 'PUT', target: '/graphql/stream', headers: {}, status: 201 }),
  graphql('the end of an operation', {
    method: 'DELETE',
    target: '/graphql/stream?operationId=1',
    headers: {},
    status: 404,
  }),
  { name: 'POST of nothing', form: 'other', method: 'POST', target: '/nothing', status: 404 },
];

const reads: Place[] = [
  rest('GET', '/requests', 200),
  rest('GET', '/requests/2147483647', 404),
  rest('GET', '/files?match=/browsers/', 200),
  rest('GET', '/quota/alice', 200),
  graphql('GraphQL GET', { method: 'GET', target: '/graphql?query=%7B__typename%7D', headers: {} }),
  graphql('a subscription by GET', { method: 'GET', target: `/graphql?query=${subscription}`, headers: EVENTS }),
  graphql('a stream by GET', { method: 'GET', target: `/graphql/stream?query=${subscription}`, headers: EVENTS }),
  graphql('GraphiQL', { method: 'GET', headers: { Accept: 'text/html' } }),
  { name: 'GET of nothing', form: 'other', method: 'GET', target: '/nothing', status: 404 },
];

const send = (place: Place, headers: Record<string, string>) =>
  sendAsIs(app, place.target, {
    method: place.method,
    headers: { ...place.headers, ...headers },
    body: place.body,
  });

/** The answer in the form of the place. */
function expectRefusal(place: Place, answer: Answer, status: number, says: RegExp): void {
  const message = expect.stringMatching(says);
  const bodies = {
    REST: [{ error: message, error_msg: message }],
    GraphQL: { errors: [{ message }] },
    other: { error: message },
  };
  expect([answer.status, answer.body]).toEqual([status, bodies[place.form]]);
  if (place.form !== 'REST') return;
  expect(answer.headers.get('content-type')).toBe('application/json');
  expect(answer.headers.get('vary')).toMatch(/^Accept\b/);
}

const countRequests = async (): Promise<bigint> => {
  const { rows } = await app.ctx.db.pool.query<{ n: bigint }>('SELECT count(*) AS n FROM request', []);
  return rows[0]?.n ?? 0n;
};

const EVIL = 'https://evil.example';
const foreign: Record<string, string>[] = [
  { Origin: EVIL },
  { Origin: 'null' },
  { Origin: '' },
  { Origin: `${EVIL}, ${LISTED}` },
  { Origin: `${LISTED}.evil.example` },
  { Origin: `${LISTED}:444` },
  { Origin: 'http://portal.example.org' },
  { Origin: `${PUBLIC}/below` },
  { Origin: 'http://127.0.0.1' }, // another port
  { Origin: 'chrome-extension://abcdefghijklmnop' },
  { Origin: EVIL, 'Sec-Fetch-Site': 'same-origin' },
  { 'Sec-Fetch-Site': 'cross-site' },
  { 'Sec-Fetch-Site': 'same-site' },
  { 'Sec-Fetch-Site': 'same-origin, cross-site' },
  { 'Sec-Fetch-Site': 'cross-site', 'Sec-Fetch-Mode': 'no-cors', 'Sec-Fetch-Dest': 'image' },
  { 'Sec-Fetch-Site': 'cross-site', 'Sec-Fetch-Mode': 'navigate', 'Sec-Fetch-Dest': 'iframe' },
];

const own: Record<string, string>[] = [
  {},
  { 'Sec-Fetch-Site': 'same-origin' },
  { 'Sec-Fetch-Site': 'none' },
  { Origin: PUBLIC, 'Sec-Fetch-Site': 'cross-site' },
  { Origin: LISTED, 'Sec-Fetch-Site': 'cross-site' },
  { Origin: LISTED },
];
const link = { 'Sec-Fetch-Site': 'cross-site', 'Sec-Fetch-Mode': 'navigate', 'Sec-Fetch-Dest': 'document' };
const BY_ORIGIN = /^a page of another origin may not ask here \((Origin|Sec-)/;
const BY_HOST = /^this gateway is not ".*": it goes by the names of PUBLIC_URL and ALLOWED_HOSTS$/;
/** What the page of a rebound name looks like. */
const reboundTo = (Host: string) => ({ Host, Origin: `http://${Host}`, 'Sec-Fetch-Site': 'same-origin' });

/** One that writes and one that reads, for what is decided before any of them; what each place does is below. */
const [somewhere, elsewhere] = [writes[0], reads[4]] as [Place, Place];

test.each(foreign)('a page of another origin is refused: %j', async (headers) => {
  const before = await countRequests();
  for (const place of [somewhere, elsewhere]) expectRefusal(place, await send(place, headers), 403, BY_ORIGIN);
  expect(await countRequests()).toBe(before);
});

test('whoever is no browser, a page of our own, and one that is listed are answered', async () => {
  for (const headers of [...own, { Origin: app.url }, { Origin: app.url, 'Sec-Fetch-Site': 'same-origin' }]) {
    for (const place of [somewhere, elsewhere])
      expect([headers, (await send(place, headers)).status]).toEqual([headers, place.status]);
  }
});

test.each([
  'evil.example',
  'evil.example:8080',
  '127.0.0.1.evil.example',
  'localhost.evil.example',
  '192.0.2.1',
  '[2001:db8::1]',
])('the host of others is refused: %s', async (Host) => {
  for (const place of [somewhere, elsewhere])
    for (const headers of [reboundTo(Host), { Host }]) expectRefusal(place, await send(place, headers), 421, BY_HOST);
});

test.each([...writes, ...reads].map((place) => [place.name, place] as const))(
  'pages of other origins, and hosts of others, are refused here, and our own are answered: %s',
  async (_name, place) => {
    const before = await countRequests();
    for (const headers of [{ Origin: EVIL }, { 'Sec-Fetch-Site': 'cross-site' }])
      expectRefusal(place, await send(place, headers), 403, BY_ORIGIN);
    expectRefusal(place, await send(place, reboundTo('evil.example')), 421, BY_HOST);
    expect(await countRequests()).toBe(before);
    for (const headers of [{}, { Origin: LISTED, 'Sec-Fetch-Site': 'cross-site' }, { Host: 'tapes.localhost:8080' }])
      expect([headers, (await send(place, headers)).status]).toEqual([headers, place.status]);
  },
);

test.each(reads)('a link of another page that somebody follows is answered: $name', async (place) => {
  expect((await send(place, link)).status).toBe(place.status);
});

test.each(writes)('a form of another page that somebody sends is refused: $name', async (place) => {
  const before = await countRequests();
  for (const headers of [link, { ...link, Origin: EVIL }]) {
    expectRefusal(place, await send(place, headers), 403, /^a page of another origin may not ask here/);
  }
  expect(await countRequests()).toBe(before);
});

const HOSTS = [
  'localhost',
  'LOCALHOST:99',
  'localhost.',
  'tapes.localhost:8080',
  '127.0.0.1:1',
  '127.9.9.9',
  '127.1',
  '[::1]',
  '[::ffff:127.0.0.1]:80',
  'tapes.example.org',
  'tapes.example.org:444',
  'Tape_Gate',
  '[2001:DB8::7]:80',
  '',
];

test.each(HOSTS)('the host %j is one of the gateway', async (Host) => {
  for (const place of [somewhere, elsewhere]) expect((await send(place, { Host })).status).toBe(place.status);
});

test('the host of a target that is a whole URL goes before that of the header', async () => {
  const place = rest('GET', '/requests', 200);
  const ask = (base: string, Host: string) => send({ ...place, target: base + place.target }, { Host });
  expect((await ask('http://localhost', 'evil.example')).status).toBe(200);
  expectRefusal(place, await ask('http://evil.example', 'localhost'), 421, /^this gateway is not "evil.example"/);
});

test('what listens on every address is asked for by each of them, and by no name', async () => {
  const everywhere = await startBeside(app, {
    config: { host: '0.0.0.0', corsOrigins: [], publicUrl: undefined, allowedHosts: [] },
  });
  try {
    const ask = async (Host: string) =>
      (await sendAsIs(everywhere, '/tape_control/api/v1/files', { headers: { Host } })).status;
    expect(await Promise.all(['0.0.0.0', '127.0.0.1', '192.0.2.1', 'evil.example'].map(ask))).toEqual([
      200, 200, 421, 421,
    ]);
    const [address = ''] = Object.values(networkInterfaces()).flatMap(
      (all) => all?.flatMap((each) => (each.family === 'IPv4' && !each.internal ? each.address : [])) ?? [],
    );
    if (address === '') return; // this machine has no other
    const url = everywhere.url.replace('0.0.0.0', address);
    expect((await sendAsIs({ url }, '/tape_control/api/v1/files')).status).toBe(200);
  } finally {
    await everywhere.close();
  }
});

test('where every caller shows a token, what it is asked for by is of no interest', async () => {
  const strict = await startBeside(app, { config: { access: { auth: new Set(['token']) } } });
  try {
    const headers = { Host: 'evil.example', Authorization: `Bearer ${strict.token}` };
    expect((await sendAsIs(strict, `${REST}/requests`, { headers })).status).toBe(200);
    expect((await sendAsIs(strict, `${REST}/requests`, { headers: { Host: 'evil.example' } })).status).toBe(401);
  } finally {
    await strict.close();
  }
});

test('R145 what is asked of another host is answered 421', async () => {
  const answer = await sendAsIs(app, `${REST}/requests`, { headers: { Host: 'evil.example' } });
  const message = 'this gateway is not "evil.example": it goes by the names of PUBLIC_URL and ALLOWED_HOSTS';
  expect([answer.status, answer.text]).toEqual([421, JSON.stringify([{ error: message, error_msg: message }])]);
});

test('R144 what a page of another origin asks for is answered 403, and stores nothing', async () => {
  const before = await countRequests();
  const form = { Origin: EVIL, 'Content-Type': 'text/plain' };
  const answer = await sendAsIs(app, `${REST}/requests`, { method: 'POST', headers: form, body: request });
  const message = `a page of another origin may not ask here (Origin: "${EVIL}"): only one of this gateway (PUBLIC_URL), or of CORS_ORIGINS`;
  expect([answer.status, answer.body]).toEqual([403, [{ error: message, error_msg: message }]]);
  expect(await countRequests()).toBe(before);
});

test.each(['/health/live', '/health/ready'])('%s is told to anybody', async (path) => {
  for (const headers of [...foreign, { Host: 'evil.example' }])
    expect((await sendAsIs(app, path, { headers })).status).toBe(200);
});

const WRITING = encodeURIComponent(mutation);

test.each([
  ['a result', `/graphql?query=${WRITING}`, {}],
  ['a plain stream', `/graphql?query=${WRITING}`, EVENTS],
  ['a stream', `/graphql/stream?query=${WRITING}`, EVENTS],
])('a mutation by GET is refused on all ways: %s', async (_name, target, headers) => {
  const before = await countRequests();
  const answer = await sendAsIs(app, target, { headers });
  expect([answer.status, answer.headers.get('allow')]).toEqual([405, 'POST']);
  expect(await countRequests()).toBe(before);
});

test('a mutation by GET on the stream of others is refused', async () => {
  const before = await countRequests();
  const token = (await sendAsIs(app, '/graphql/stream', { method: 'PUT' })).text;
  const target = `/graphql/stream?token=${token}&query=${WRITING}&extensions=${encodeURIComponent('{"operationId":"1"}')}`;
  const answer = await sendAsIs(app, target, { headers: { Accept: 'application/json' } });
  expect([answer.status, answer.headers.get('allow')]).toEqual([405, 'POST']);
  expect(await countRequests()).toBe(before);
});

test.each(['application/json', 'application/json; charset=utf-8', 'Application/JSON;charset="UTF-8"'])(
  'GraphQL takes a body of the type %s',
  async (type) => {
    const place = graphql('', { headers: { 'Content-Type': type }, body: query });
    expect((await send(place, {})).body).toEqual({ data: { __typename: 'Query' } });
  },
);

test.each([
  'text/plain',
  'application/x-www-form-urlencoded',
  'multipart/form-data; boundary=x',
  'application/graphql',
  'application/json-seq',
  'application/vnd.api+json',
  'text/plain; application/json',
  'text/plain, application/json',
])('GraphQL takes no body of the type %s', async (type) => {
  for (const target of ['/graphql', '/graphql/stream']) {
    const place = graphql('', { target, headers: { ...EVENTS, 'Content-Type': type }, body: query });
    expectRefusal(place, await send(place, {}), 415, /^Content-Type must be application\/json, not "/);
  }
});
