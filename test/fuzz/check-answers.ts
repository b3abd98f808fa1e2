/** Checks responses: the status and form must be documented, and the text must not reveal internals. */
import { STATUS_CODES } from 'node:http';
import { messageOf } from '../../src/core/errors.js';
import { parseJson } from '../support/exact-json.js';
import type { Answer } from './client.js';
import type { HttpInput } from './inputs.js';

export type FaultKind = 'status' | 'internal-error' | 'form';

/** Result of a check; undefined without a fault. `busy` if the client should retry, which is allowed for few inputs. */
export type Finding = { kind: FaultKind; text: string } | 'busy' | undefined;

/** Texts that only developers should see. */
const INTERNALS =
  /node_modules|\bat [^"\s]+ \(|\/(src|dist|rest|graphql)\/[\w-]+\.[jt]s\b|prisma\.|PrismaClient|ECONN|errno|SQLSTATE/;
const BUSY = [429, 503];

/** Checks a response. If the response is incomplete, only its status and text are checked. */
export function checkAnswer(input: HttpInput, answer: Answer): Finding {
  const { status, headers, text, isWhole } = answer;
  if (status === 0) return undefined;
  const general = checkStatus(answer) ?? checkText(text);
  if (general) return general;
  if (input.method === 'HEAD')
    return text === '' ? undefined : { kind: 'form', text: 'the response to HEAD has a body' };
  if (headers['content-type']?.startsWith('text/event-stream')) return checkForm(() => checkEventStream(text));
  if (!isWhole) return undefined;
  // a request with too many headers is rejected before its API is known
  const check = status === 431 ? checkRest : CHECKS[input.api];
  return checkForm(() => check(input, answer));
}

/** Checks the text of a stream that stayed open for a while. */
export function checkStream(text: string): Finding {
  return checkText(text) ?? checkForm(() => checkEventStream(text));
}

/** Checks the responses to raw bytes: each response must have a known status. */
export function checkRaw(text: string): Finding {
  if (text === '') return undefined;
  if (!text.startsWith('HTTP/1.1 ')) return { kind: 'form', text: `no HTTP: ${text.slice(0, 200)}` };
  for (const [, status] of text.matchAll(/HTTP\/1\.1 (\d{3}) /g)) {
    const found = checkStatus({ status: Number(status), headers: { 'retry-after': '?' }, text });
    if (found) return found;
  }
  return checkText(text);
}

function checkStatus({ status, headers, text }: Pick<Answer, 'status' | 'headers' | 'text'>): Finding {
  if (BUSY.includes(status)) {
    return headers['retry-after']
      ? 'busy'
      : { kind: 'form', text: `${status} without Retry-After: ${text.slice(0, 200)}` };
  }
  const isKnown = (status < 500 && STATUS_CODES[status] !== undefined) || status === 501; // unknown Transfer-Encoding
  if (isKnown) return undefined;
  return { kind: status === 500 ? 'internal-error' : 'status', text: `returned ${status}: ${text.slice(0, 300)}` };
}

function checkText(text: string): Finding {
  if (/"Internal error"|INTERNAL_SERVER_ERROR/.test(text)) return { kind: 'internal-error', text: text.slice(0, 500) };
  if (/"code":"UNAVAILABLE"/.test(text)) return 'busy';
  if (/"code":"UNCONFIRMED"/.test(text)) return { kind: 'internal-error', text: text.slice(0, 500) };
  return undefined;
}

function checkForm(check: () => string | undefined): Finding {
  try {
    const problem = check();
    return problem === undefined ? undefined : { kind: 'form', text: problem };
  } catch (error) {
    return { kind: 'form', text: messageOf(error) };
  }
}

const CHECKS: Record<HttpInput['api'], (input: HttpInput, answer: Answer) => string | undefined> = {
  rest: checkRest,
  graphql: checkGraphql,
  upload: checkImport,
  any: checkAny,
};

/** Checks a REST response: an array of one object. An error has the same message in both fields. */
function checkRest(input: HttpInput, { status, headers, text }: Answer): string | undefined {
  if (headers['content-type'] !== 'application/json')
    return `Content-Type is ${headers['content-type']}: ${text.slice(0, 200)}`;
  if (!/\bAccept\b/i.test(headers.vary ?? '')) return `Vary is ${headers.vary}`;
  const body = parseJson(text);
  const object: unknown = Array.isArray(body) && body.length === 1 ? body[0] : undefined;
  if (!isObject(object)) return `no array of one object: ${text.slice(0, 200)}`;
  if (status === 200) return checkRestObject(input, object);
  const { error_msg: message, ...error } = object;
  if (message !== error.error) return `an error without its message: ${text.slice(0, 200)}`;
  return checkError(error, status, headers);
}

function checkError(
  { error, ...others }: Record<string, unknown>,
  status: number,
  headers: Answer['headers'],
): string | undefined {
  if (typeof error !== 'string' || error === '') return `an error without its message: ${error}`;
  if (Object.keys(others).length > 0) return `an error with ${Object.keys(others)}`;
  if (status === 405 && !headers.allow) return '405 without Allow';
  if (status === 401 && !headers['www-authenticate']) return '401 without WWW-Authenticate';
  // this message quotes the request body
  return INTERNALS.test(error) && !error.startsWith('the body is not JSON')
    ? `an error reveals internals: ${error}`
    : undefined;
}

/** Fields of section 2 of the contract, in the contract's order. */
const TIMES = 'tapestore_request_start? tapestore_request_end? first_files_on_disk? last_files_on_disk?';
const REQUEST = `id quota retention request_date request_patterns notify_on_first_file notify_on_last_file label ${TIMES} files`;

function checkRestObject({ method, target }: HttpInput, object: Record<string, unknown>): string | undefined {
  const [path = ''] = target.replace('/tape_control/api/v1/', '').split('?');
  if (method !== 'GET') return checkFields(object, 'req_id');
  if (/^requests\/?$/.test(path)) {
    return checkFields(object, 'requests') ?? checkItems(object.requests, 'id quota retention request_date label');
  }
  if (path.startsWith('requests/')) return checkFields(object, REQUEST);
  if (path.startsWith('quota/')) {
    const problem = checkFields(object, 'id user size used email notes requests');
    return problem ?? checkItems(object.requests, `id request_date retention label ${TIMES}`);
  }
  const problem = checkFields(object, 'count files') ?? checkItems(object.files, 'path spot-name? stage verified size');
  const { count, files } = object as { count: number; files: unknown[] };
  return problem ?? (count === files.length ? undefined : `count is ${count} for ${files.length} files`);
}

function checkItems(items: unknown, fields: string): string | undefined {
  if (!Array.isArray(items)) return `no list: ${JSON.stringify(items)}`;
  return items.map((item) => checkFields(item, fields)).find((problem) => problem !== undefined);
}

function checkFields(object: object, fields: string): string | undefined {
  const found = Object.keys(object);
  const expected = fields.split(' ').filter((field) => !field.endsWith('?') || found.includes(field.slice(0, -1)));
  const names = expected.join().replaceAll('?', '');
  return found.join() === names ? undefined : `has ${found.join()}, and not ${names}`;
}

function checkGraphql(_input: HttpInput, { status, headers, text }: Answer): string | undefined {
  const type = headers['content-type'] ?? '';
  if ([201, 202, 204].includes(status)) return undefined;
  if (type.startsWith('text/html') && status === 200) return undefined; // GraphiQL is an HTML page
  if (!/^application\/(graphql-response\+)?json\b/.test(type)) return `Content-Type is ${type}: ${text.slice(0, 200)}`;
  const problem = checkGraphqlBody(parseJson(text));
  return problem === undefined ? undefined : `${problem}: ${text.slice(0, 300)}`;
}

/** Returns the first problem of a GraphQL response, or undefined. graphql-js ensures the types of the data. */
function checkGraphqlBody(body: unknown): string | undefined {
  if (!isObject(body)) return 'the response is no object';
  const { data, errors, extensions: _, ...others } = body;
  if (Object.keys(others).length > 0) return `the response has ${Object.keys(others)}`;
  if (data === undefined && errors === undefined) return 'the response has neither data nor errors';
  if (errors !== undefined) {
    if (!Array.isArray(errors) || errors.length === 0) return 'errors is no list of some';
    const wrong = errors.find((error) => !isObject(error) || typeof error.message !== 'string' || error.message === '');
    if (wrong) return `an error without a message: ${JSON.stringify(wrong)}`;
    if (data === undefined || data === null) return undefined;
  }
  if (!isObject(data)) return data === null ? 'data is null without an error' : 'data is no object';
  return undefined;
}

/** Checks the events and comments of a graphql-sse stream. The last event may be incomplete. */
function checkEventStream(text: string): string | undefined {
  for (const message of text.split('\n\n').slice(0, -1)) {
    if (message === ':') continue;
    const [, event, data = ''] = /^event: (next|complete)\n(?:id: \d+\n)?data:([^\n]*)$/.exec(message) ?? [];
    if (event === undefined) return `no event: ${message.slice(0, 200)}`;
    if (data === '') continue;
    const value: unknown = parseJson(data);
    if (!isObject(value)) return `no object: ${message.slice(0, 200)}`;
    const problem = 'id' in value ? undefined : checkGraphqlBody(value);
    if (problem !== undefined) return `${problem}: ${message.slice(0, 300)}`;
  }
  return undefined;
}

/** Checks the response to an import: counts of imported rows, or an error with the bad rows. */
function checkImport(_input: HttpInput, { status, headers, text }: Answer): string | undefined {
  if (!/^application\/json\b/.test(headers['content-type'] ?? '')) return `Content-Type is ${headers['content-type']}`;
  const body = parseJson(text);
  if (!isObject(body)) return `no object: ${text.slice(0, 200)}`;
  if (status === 200) {
    const isCount = (value: unknown) => typeof value === 'number' && Number.isInteger(value) && value >= 0;
    return Object.values(body).every(isCount) ? undefined : `no counts: ${text.slice(0, 200)}`;
  }
  const { faults, ...error } = body;
  if (faults !== undefined && (!Array.isArray(faults) || status !== 400))
    return `${status} with faults: ${text.slice(0, 200)}`;
  return checkError(error, status, headers);
}

function checkAny(_input: HttpInput, { status, headers, text }: Answer): string | undefined {
  const type = headers['content-type'] ?? '';
  if (text === '' || status === 201 || type.startsWith('text/html')) return undefined;
  const isMetrics = type.startsWith('text/plain; version=0.0.4') && status === 200;
  if (isMetrics) return text.startsWith('# HELP ') ? undefined : `no metrics: ${text.slice(0, 200)}`;
  const isSchema = type === 'text/plain; charset=utf-8' && status === 200;
  if (isSchema) return text.includes('type Query {') ? undefined : `no schema: ${text.slice(0, 200)}`;
  if (!/json/.test(type)) return `Content-Type is ${type}: ${text.slice(0, 200)}`;
  const body: unknown = parseJson(text);
  return typeof body === 'object' && body !== null
    ? undefined
    : `neither an array nor an object: ${text.slice(0, 200)}`;
}

type JsonObject = Record<string, unknown>;

function isObject(value: unknown): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
