/**
 * The OpenAPI document matches the gateway. Requests are generated from the document, and responses are compared with
 * it.
 */
import { Ajv2020 } from 'ajv/dist/2020.js';
import fc, { type Arbitrary } from 'fast-check';
import { describe, expect, test } from 'vitest';
import { bodyForm, endpoints } from '../../rest/v1/endpoints.js';
import { forms, type JsonSchema } from '../../rest/v1/forms.js';
import { describeRest } from '../../rest/v1/openapi.js';
import { startBeside } from '../support/app.js';
import type { BadInput, BadRest } from '../support/bad-input-forms.js';
import { badReads } from '../support/bad-reads.js';
import { badWrites } from '../support/bad-writes.js';
import { addFiles, addQuota } from '../support/factories.js';
import { type Answer, sendAsIs } from '../support/http.js';
import { call, makeRequest } from '../support/rest.js';
import { valuesOf } from '../support/schema-values.js';
import { useApp } from '../support/use-app.js';

const app = useApp({}, async () => {
  await addFiles(
    app.ctx,
    Array.from({ length: 20 }, (_, n) => ({ path: `/a/${n}.nc`, stage: n % 2 ? 'ONTAPE' : 'ONDISK' })),
  );
  await addQuota(app.ctx, 'alice', 10n ** 9n);
  await addQuota(app.ctx, 'bob', 1n);
  for (let n = 0; n < 5; n++) await makeRequest(app, { quota: 'alice', patterns: '/a/1' });
});

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

/** Expects that the document describes the status, content type and body of a response. */
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

/** Values that are likely to exist in the database of the test. */
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

/** Messages for rules that a schema cannot express: times, sizes of encoded text, and reserved names. */
const BEYOND_SCHEMAS =
  /^(retention must be|files has a path that|(label|patterns|match) must have at most|notify_on_\w+ must (be an email address without invisible|not have a domain with))/;

describe.each(operations)('$title', (operation) => {
  test('a request that the document allows gets a response of the document', async () => {
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

  test('bad input gets an error of the document', async () => {
    const path = operation.path.replace(/\{\w+\}/g, '[^/?]+');
    const isOfOperation = (input: BadInput): input is BadRest =>
      input.protocol === 'REST' &&
      input.method.toLowerCase() === operation.method &&
      new RegExp(`^${path}(\\?|$)`).test(input.path);
    const inputs = [...badWrites, ...badReads].filter(isOfOperation);
    for (const input of inputs) expectDescribed(operation, await call(app, input.method, input.path, input));
    if (operation.path !== '/requests' || operation.method !== 'get') expect(inputs).not.toEqual([]);
  });

  test('the examples of the document are valid', () => {
    const { answer, body = [], parameters } = operation;
    const { responses } = document.paths[operation.path][operation.method];
    const [shown] = Object.values(responses[200].content['application/json'].examples) as { value: unknown }[];
    expect(shown?.value).toEqual([answer.example]);
    const at = ['paths', operation.path, operation.method, 'responses', 200, 'content', 'application/json', 'schema'];
    const validate = validatorOf(...at);
    expect([validate(shown?.value), validate.errors]).toEqual([true, null]);
    for (const { form, example } of body) expect(isAllowed({ ...form }, example)).toBe(true);
    for (const { schema, example } of parameters) expect(isAllowed(schema, example)).toBe(true);
  });
});

const validators = new Map<string, ReturnType<typeof ajv.compile>>();

/** Returns whether a schema accepts a value. Compiles each schema once. */
function isAllowed(schema: JsonSchema, value: unknown): boolean {
  const key = JSON.stringify(schema);
  const validate = validators.get(key) ?? ajv.compile({ ...schema, components: document.components });
  validators.set(key, validate);
  return validate(value) as boolean;
}

test('the document is public, and revalidated by its ETag', async () => {
  const closed = await startBeside(app, {
    config: { access: { auth: new Set(['token']) }, publicUrl: 'https://tapes.example.org/a' },
  });
  try {
    const headers = { host: 'tapes.example.org' };
    const answer = await sendAsIs(closed, '/openapi.json', { headers });
    expect([answer.status, answer.headers.get('content-type')]).toEqual([200, 'application/json']);
    expect(answer.text).toContain('https://tapes.example.org/a/tape_control/api/v1');
    const again = { ...headers, 'If-None-Match': answer.headers.get('etag') ?? '' };
    expect((await sendAsIs(closed, '/openapi.json', { headers: again })).status).toBe(304);
    const post = await sendAsIs(closed, '/openapi.json', { headers, method: 'POST' });
    expect([post.status, post.headers.get('allow')]).toEqual([405, 'GET, HEAD']);
  } finally {
    await closed.close();
  }
  const served = await sendAsIs(app, '/openapi.json');
  expect(JSON.parse(served.text)).toEqual(document);
});
