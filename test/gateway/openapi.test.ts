/** The OpenAPI document beside the gateway that it describes: requests are made of it, and answers compared with it. */
import { Ajv2020 } from 'ajv/dist/2020.js';
import fc, { type Arbitrary } from 'fast-check';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { Parameter } from '../../rest/endpoints.js';
import { bodyForm, endpoints } from '../../rest/endpoints.js';
import { forms, type JsonSchema } from '../../rest/forms.js';
import { describeRest } from '../../rest/openapi.js';
import { startApp, type TestApp } from '../support/app.js';
import { addFiles, addQuota } from '../support/factories.js';
import { type Answer, sendAsIs } from '../support/http.js';
import { makeRequest } from '../support/rest.js';
import { valuesOf } from '../support/schema-values.js';

let app: TestApp;
beforeAll(async () => {
  app = await startApp();
  await addFiles(
    app.ctx,
    Array.from({ length: 20 }, (_, n) => ({ path: `/a/${n}.nc`, stage: n % 2 ? 'ONTAPE' : 'ONDISK' })),
  );
  await addQuota(app.ctx, 'alice', 10n ** 9n);
  await addQuota(app.ctx, 'bob', 1n);
  for (let n = 0; n < 5; n++) await makeRequest(app, { quota: 'alice', patterns: '/a/1' });
}, 120_000);
afterAll(() => app?.close());

const document = JSON.parse(JSON.stringify(describeRest()));
const ajv = new Ajv2020({ strict: false, formats: { int64: true } });
ajv.addSchema(document, 'openapi');

const pointerOf = (...parts: (string | number)[]) =>
  parts.map((part) => `/${String(part).replaceAll('~', '~0').replaceAll('/', '~1')}`).join('');
const answers = new Map<string, ReturnType<typeof ajv.compile>>();

function validatorOf(...parts: (string | number)[]): ReturnType<typeof ajv.compile> {
  const pointer = encodeURI(pointerOf(...parts));
  const validate = answers.get(pointer) ?? ajv.compile({ $ref: `openapi#${pointer}` });
  answers.set(pointer, validate);
  return validate;
}

interface Call {
  target: string;
  body: unknown;
}

const API = '/tape_control/api/v1';
const operations = endpoints.map((endpoint) => ({
  ...endpoint,
  title: `${endpoint.method} ${endpoint.path}`,
  endpoint,
}));
type Operation = (typeof operations)[number];

/** Status, type and body are those of one answer that the document has. */
function expectDescribed({ method, path }: Operation, { status, headers, body, text }: Answer): void {
  const described = document.paths[path][method].responses[status];
  expect([status, described, text]).toEqual([status, expect.anything(), text]);
  const type = headers.get('content-type') ?? '';
  expect(Object.keys(described.content)).toEqual([type]);
  const validate = validatorOf('paths', path, method, 'responses', status, 'content', type, 'schema');
  validate(body);
  expect([text, validate.errors]).toEqual([text, null]);
}

async function ask({ method, body: takes }: Operation, { target, body }: Call): Promise<Answer> {
  const json = { 'Content-Type': 'application/json' };
  const sent = takes ? { body: JSON.stringify(body), headers: json } : {};
  return await sendAsIs(app, target, { method: method.toUpperCase(), ...sent });
}

/** What the gateway knows, and what is allowed to be. */
const favourites: Record<string, Arbitrary<unknown>> = {
  id: fc.integer({ min: 1, max: 5 }),
  user: fc.constantFrom('alice', 'bob'),
  quota: fc.constantFrom('alice', 'alice', 'bob'),
  patterns: fc.constantFrom('/a/1', '/a/', 'nothing'),
  files: fc.constantFrom(['/a/1.nc', '/b'], '/a/2.nc\n/a/3.nc\n'),
  retention: fc.constantFrom('2999-01-02', '2999-01-02T03:04:05.5', '', null),
  match: fc.constantFrom('/a', '7', ''),
};
const making = { forms, favourites };
const oftenKnown = (name: string, schema: JsonSchema) => {
  const values = valuesOf(schema, making);
  return favourites[name] ? fc.oneof(favourites[name], values) : values;
};

const targetOf = (operation: Operation, values: Record<string, unknown>) => {
  const encode = (value: unknown) => encodeURIComponent(String(value));
  const path = operation.path.replace(/\{(\w+)\}/g, (_, name) => encode(values[name]));
  const query = operation.parameters.filter(({ in: place, name }) => place === 'query' && name in values);
  return `${API}${path}?${query.map(({ name }) => `${encode(name)}=${encode(values[name])}`).join('&')}`;
};

function parametersOf({ parameters }: Operation): Arbitrary<Record<string, unknown>> {
  const requiredKeys = parameters.filter(({ in: place }) => place === 'path').map(({ name }) => name);
  const all = parameters.map(({ name, schema }) => [name, oftenKnown(name, schema)]);
  return fc.record(Object.fromEntries(all), { requiredKeys });
}

function bodiesOf({ endpoint, body }: Operation): Arbitrary<unknown> {
  const form = bodyForm(endpoint);
  return body ? valuesOf(form, making).filter((value) => isAllowed(form, value)) : fc.constant(undefined);
}

const callsOf = (operation: Operation): Arbitrary<Call> =>
  fc.tuple(parametersOf(operation), bodiesOf(operation)).map(([values, body]) => ({
    target: targetOf(operation, values),
    body,
  }));

/** Of what a schema cannot say: what only days, sizes of encoded text and names that are kept for others can be refused for. */
const BEYOND_SCHEMAS = /^(retention must be|files has a path that|(label|patterns|match) must have at most)/;

describe.each(operations)('$title', (operation) => {
  test('what the document allows is answered as it says', async () => {
    const statuses = new Set<number>();
    const property = fc.asyncProperty(callsOf(operation), async (call) => {
      const answer = await ask(operation, call);
      expectDescribed(operation, answer);
      statuses.add(answer.status);
      if (answer.status === 400) expect((answer.body as [{ error: string }])[0].error).toMatch(BEYOND_SCHEMAS);
    });
    await fc.assert(property, { numRuns: 25 });
    expect([...statuses]).toContain(200);
  });

  const faults = faultsOf(operation);
  test.runIf(faults.length > 0)('what the document does not allow is refused as it says', async () => {
    const property = fc.asyncProperty(fc.oneof(...faults), async ({ call, status }) => {
      const answer = await ask(operation, call);
      expect([answer.text, answer.status]).toEqual([answer.text, status]);
      expectDescribed(operation, answer);
    });
    await fc.assert(property, { numRuns: 30 });
  });

  test('what the document gives as an example is taken and answered', () => {
    const { answer, body = [], parameters } = operation;
    const { responses } = document.paths[operation.path][operation.method];
    const [shown] = Object.values(responses[200].content['application/json'].examples) as { value: unknown }[];
    expect(shown?.value).toEqual([answer.example]);
    const validate = validatorOf(
      'paths',
      operation.path,
      operation.method,
      'responses',
      200,
      'content',
      'application/json',
      'schema',
    );
    expect([validate(shown?.value), validate.errors]).toEqual([true, null]);
    for (const { form, example } of body) expect(isAllowed({ ...form }, example)).toBe(true);
    for (const { schema, example } of parameters) expect(isAllowed(schema, example)).toBe(true);
  });

  test('no other method is taken', async () => {
    const described = Object.keys(document.paths[operation.path]).map((method) => method.toUpperCase());
    for (const method of ['GET', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS']) {
      if (described.includes(method)) continue;
      const { status, headers } = await sendAsIs(app, targetOf(operation, { id: 1, user: 'alice' }), { method });
      expect([method, status]).toEqual([method, 405]);
      expect(headers.get('allow')?.split(', ').sort()).toEqual([...described, 'HEAD'].sort());
    }
  });
});

const validators = new Map<string, ReturnType<typeof ajv.compile>>();

/** Compiled once for each schema, which takes longer than all values. */
function isAllowed(schema: JsonSchema, value: unknown): boolean {
  const key = JSON.stringify(schema);
  const validate = validators.get(key) ?? ajv.compile({ ...schema, components: document.components });
  validators.set(key, validate);
  return validate(value) as boolean;
}

interface Fault {
  call: Call;
  status: number;
}

/** Calls with one thing that the document does not allow. */
function faultsOf(operation: Operation): Arbitrary<Fault>[] {
  const { parameters, body } = operation;
  const inPlace = (place: Parameter['in']) =>
    parameters
      .filter(({ in: at, schema }) => at === place && refusable(schema))
      .map((each) => faultIn(operation, each));
  return [...inPlace('path'), ...inPlace('query'), ...(body ? [faultInBody(operation)] : [])];
}

const refusable = ({ pattern, enum: values, type }: JsonSchema) => Boolean(pattern ?? values) || type === 'integer';

function faultIn(operation: Operation, { name, in: place, schema }: Parameter): Arbitrary<Fault> {
  const odd = fc.oneof(
    fc.string({ unit: 'grapheme', minLength: 1 }),
    fc.integer().map(String),
    fc.constantFrom('\0', 'x'.repeat(2049), '1.5', '4294967296'),
  );
  const read = (text: string) => (schema.type === 'integer' && /^\d+$/.test(text) ? Number(text) : text);
  const refused = odd.filter((text) => !isAllowed(schema, read(text)));
  return fc.tuple(parametersOf(operation), refused, bodiesOf(operation)).map(([values, text, body]) => ({
    call: { target: targetOf(operation, { ...values, [name]: text }), body },
    status: place === 'path' ? 404 : 400,
  }));
}

function faultInBody(operation: Operation): Arbitrary<Fault> {
  const form = bodyForm(operation.endpoint);
  const names = Object.keys(forms.RequestByPattern.properties);
  const change = (body: unknown, [name, value]: [string, unknown]) => {
    const bare = { ...([body].flat()[0] as object), [name]: value };
    return Array.isArray(body) ? [bare] : bare;
  };
  const odd = fc.oneof(
    fc.jsonValue(),
    fc.constantFrom(undefined, 'a@b@c', '2026-1-1', 'x\ny', '/a//b', ['a'], 'x'.repeat(2100)),
  );
  const bodies = fc.oneof(
    {
      weight: 9,
      arbitrary: fc
        .tuple(bodiesOf(operation), fc.tuple(fc.constantFrom(...names), odd))
        .map(([body, at]) => change(body, at)),
    },
    fc.jsonValue(),
    bodiesOf(operation).map((body) => [body, body]),
  );
  return bodies
    .filter((body) => !isAllowed(form, JSON.parse(JSON.stringify(body))))
    .map((body) => ({ call: { target: targetOf(operation, { id: 1 }), body }, status: 400 }));
}

test('the document and its page are there for everybody, and asked for again only when they have changed', async () => {
  const closed = await startApp({
    config: { access: { auth: new Set(['token']) }, publicUrl: 'https://tapes.example.org/a' },
  });
  try {
    const headers = { host: 'tapes.example.org' };
    for (const [target, type] of [
      ['/openapi.json', 'application/json'],
      ['/openapi', 'text/html; charset=utf-8'],
    ] as const) {
      const answer = await sendAsIs(closed, target, { headers });
      expect([answer.status, answer.headers.get('content-type')]).toEqual([200, type]);
      expect(answer.text).toContain('https://tapes.example.org/a/tape_control/api/v1');
      const again = { ...headers, 'If-None-Match': answer.headers.get('etag') ?? '' };
      expect((await sendAsIs(closed, target, { headers: again })).status).toBe(304);
      const post = await sendAsIs(closed, target, { headers, method: 'POST' });
      expect([post.status, post.headers.get('allow')]).toEqual([405, 'GET, HEAD']);
    }
  } finally {
    await closed.close();
  }
  const served = await sendAsIs(app, '/openapi.json');
  expect(JSON.parse(served.text)).toEqual(document);
});
