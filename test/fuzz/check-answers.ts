/** Whether an answer is one that the documents know: its status, its form, and nothing of the inside. */
import { STATUS_CODES } from 'node:http';
import { messageOf } from '../../src/errors.js';
import { parseJson } from '../../src/json.js';
import { checkEventStream, checkGraphqlBody } from './check-graphql.js';
import type { Answer } from './client.js';
import type { HttpInput } from './input.js';

/** What is wrong; undefined: nothing is. `busy`: refused for now, as it may be at times. */
export type Finding = { kind: FaultKind; text: string } | 'busy' | undefined;

export type FaultKind = 'status' | 'internal-error' | 'form' | 'inside';

/** Of an answer that tells what only its makers should know. */
const INSIDE =
  /node_modules|\bat [^"\s]+ \(|\/(src|dist|rest|graphql)\/[\w-]+\.[jt]s\b|prisma\.|PrismaClient|ECONN|errno|SQLSTATE/;
/** What is refused for a while: by the gateway's limits, or since something takes too long. */
const BUSY = [429, 503];

const fault = (kind: FaultKind, text: string): Finding => ({ kind, text });

/** Of an answer over HTTP that came whole; of one that did not, only its status can be judged. */
export function checkAnswer(input: HttpInput, answer: Answer): Finding {
  const { status, text, isWhole } = answer;
  if (status === 0) return undefined;
  const general = checkStatus(answer) ?? checkWords(text);
  if (general) return general;
  if (input.method === 'HEAD') return text === '' ? undefined : fault('form', 'an answer to HEAD has a body');
  const type = answer.headers['content-type'] ?? '';
  if (type.startsWith('text/event-stream')) return checkForm(() => checkEventStream(text));
  if (!isWhole) return undefined;
  return checkForm(() => {
    // what is too long to be read is answered before anybody knows what it asks for
    if (input.door === 'rest' || answer.status === 431) return checkRest(input, answer);
    if (input.door === 'graphql') return checkGraphql(input, answer);
    if (input.door === 'upload') return checkImport(answer);
    return checkAny(answer);
  });
}

/** Of what came on a stream that was left open; the last message may have been cut. */
export function checkStream(text: string): Finding {
  return checkWords(text) ?? checkForm(() => checkEventStream(text));
}

function checkStatus({ status, headers, text }: Answer): Finding {
  if (BUSY.includes(status)) {
    return headers['retry-after'] ? 'busy' : fault('form', `${status} without Retry-After: ${text.slice(0, 200)}`);
  }
  if (status < 500 && STATUS_CODES[status] !== undefined) return undefined;
  return fault(status === 500 ? 'internal-error' : 'status', `answered ${status}: ${text.slice(0, 300)}`);
}

function checkWords(text: string): Finding {
  if (/"Internal error"|INTERNAL_SERVER_ERROR/.test(text)) return fault('internal-error', text.slice(0, 500));
  if (/"code":"UNAVAILABLE"/.test(text)) return 'busy';
  if (/"code":"UNCONFIRMED"/.test(text)) return fault('internal-error', text.slice(0, 500));
  return undefined;
}

/** @param find gives the words for what is wrong */
function checkForm(find: () => string | undefined): Finding {
  try {
    const problem = find();
    return problem === undefined ? undefined : fault('form', problem);
  } catch (error) {
    return fault('form', messageOf(error));
  }
}

/** An array of one object, whatever the status; an error has the same message twice. */
function checkRest(input: HttpInput, { status, headers, text }: Answer): string | undefined {
  if (headers['content-type'] !== 'application/json')
    return `Content-Type is ${headers['content-type']}: ${text.slice(0, 200)}`;
  if (!/\bAccept\b/i.test(headers.vary ?? '')) return `Vary is ${headers.vary}`;
  const body = parseJson(text);
  if (!Array.isArray(body) || body.length !== 1) return `the body is no array of one: ${text.slice(0, 200)}`;
  const [object] = body as [unknown];
  if (typeof object !== 'object' || object === null || Array.isArray(object)) return `no object: ${text.slice(0, 200)}`;
  if (status !== 200) return checkRestError(object as Record<string, unknown>, status, headers);
  return checkRestObject(input, object as Record<string, unknown>);
}

function checkRestError(
  object: Record<string, unknown>,
  status: number,
  headers: Answer['headers'],
): string | undefined {
  const { error, error_msg: message, ...others } = object;
  if (typeof error !== 'string' || error === '' || error !== message)
    return `an error without its message: ${JSON.stringify(object)}`;
  if (Object.keys(others).length > 0) return `an error that says more: ${JSON.stringify(object)}`;
  if (status === 405 && !headers.allow) return '405 without Allow';
  if (status === 401 && !headers['www-authenticate']) return '401 without WWW-Authenticate';
  return INSIDE.test(error) && !error.startsWith('the body is not JSON')
    ? `an error that tells of the inside: ${error}`
    : undefined;
}

/** The forms of section 2 of the contract: what must be there, and what may be, in this order. */
const TIMES = ['tapestore_request_start?', 'tapestore_request_end?', 'first_files_on_disk?', 'last_files_on_disk?'];
const ADDRESSES = ['notify_on_first_file', 'notify_on_last_file'];
const REQUEST = [
  'id',
  'quota',
  'retention',
  'request_date',
  'request_patterns',
  ...ADDRESSES,
  'label',
  ...TIMES,
  'files',
];
const SUMMARY = ['id', 'quota', 'retention', 'request_date', 'label'];
const OF_QUOTA = ['id', 'request_date', 'retention', 'label', ...TIMES];
const QUOTA = ['id', 'user', 'size', 'used', 'email', 'notes', 'requests'];
const FILE = ['path', 'spot-name?', 'stage', 'verified', 'size'];

function checkRestObject({ method, target }: HttpInput, object: Record<string, unknown>): string | undefined {
  const [place = ''] = target.replace('/tape_control/api/v1/', '').split('?');
  if (method !== 'GET') return checkKeys(object, ['req_id']);
  if (/^requests\/?$/.test(place)) return checkKeys(object, ['requests']) ?? checkItems(object.requests, SUMMARY);
  if (place.startsWith('requests/')) return checkKeys(object, REQUEST);
  if (place.startsWith('quota/')) return checkKeys(object, QUOTA) ?? checkItems(object.requests, OF_QUOTA);
  const list = checkKeys(object, ['count', 'files']) ?? checkItems(object.files, FILE);
  if (list !== undefined) return list;
  const { count, files } = object as { count: number; files: unknown[] };
  return count === files.length ? undefined : `count is ${count}, of ${files.length} files`;
}

function checkItems(items: unknown, keys: readonly string[]): string | undefined {
  if (!Array.isArray(items)) return `no list: ${JSON.stringify(items)}`;
  for (const item of items) {
    const problem = checkKeys(item, keys);
    if (problem !== undefined) return problem;
  }
  return undefined;
}

function checkKeys(object: object, keys: readonly string[]): string | undefined {
  const given = Object.keys(object);
  const due = keys
    .filter((key) => !key.endsWith('?') || given.includes(key.slice(0, -1)))
    .map((key) => key.replace('?', ''));
  return given.join() === due.join() ? undefined : `has ${given.join()}, and not ${due.join()}`;
}

function checkGraphql(input: HttpInput, { status, headers, text }: Answer): string | undefined {
  const type = headers['content-type'] ?? '';
  if ([201, 202, 204].includes(status)) return undefined;
  if (type.startsWith('text/html') && status === 200) return undefined; // GraphiQL, for who likes it best
  if (!/^application\/(graphql-response\+)?json\b/.test(type)) return `Content-Type is ${type}: ${text.slice(0, 200)}`;
  const problem = checkGraphqlBody(parseJson(text), status === 200 ? input.query : undefined);
  return problem === undefined ? undefined : `${problem}: ${text.slice(0, 300)}`;
}

/** The counts of what was taken, or what is wrong, with the rows that are at fault. */
function checkImport({ status, headers, text }: Answer): string | undefined {
  if (!/^application\/json\b/.test(headers['content-type'] ?? '')) return `Content-Type is ${headers['content-type']}`;
  const body = parseJson(text) as Record<string, unknown>;
  if (typeof body !== 'object' || body === null || Array.isArray(body)) return `no object: ${text.slice(0, 200)}`;
  if (status === 200) {
    const isCount = (value: unknown) => typeof value === 'number' && Number.isInteger(value) && value >= 0;
    return Object.values(body).every(isCount) ? undefined : `no counts: ${text.slice(0, 200)}`;
  }
  const { error, faults, ...others } = body;
  if (typeof error !== 'string' || error === '') return `an error without its message: ${text.slice(0, 200)}`;
  if (Object.keys(others).length > 0) return `an error that says more: ${text.slice(0, 200)}`;
  if (status === 401 && !headers['www-authenticate']) return '401 without WWW-Authenticate';
  if (status === 405 && !headers.allow) return '405 without Allow';
  if (faults !== undefined && (!Array.isArray(faults) || status !== 400))
    return `faults of ${status}: ${text.slice(0, 200)}`;
  return INSIDE.test(error) ? `an error that tells of the inside: ${error}` : undefined;
}

/** Of a target that may lead anywhere. */
function checkAny({ status, headers, text }: Answer): string | undefined {
  const type = headers['content-type'] ?? '';
  if (text === '' || status === 201 || type.startsWith('text/html')) return undefined;
  if (type.startsWith('text/plain; version=0.0.4') && status === 200) {
    return text.startsWith('# HELP ') ? undefined : `no metrics: ${text.slice(0, 200)}`;
  }
  if (type === 'text/plain; charset=utf-8' && status === 200) {
    return text.includes('type Query {') ? undefined : `no schema: ${text.slice(0, 200)}`;
  }
  if (!/json/.test(type)) return `Content-Type is ${type}: ${text.slice(0, 200)}`;
  const body: unknown = parseJson(text);
  return typeof body === 'object' && body !== null
    ? undefined
    : `neither an array nor an object: ${text.slice(0, 200)}`;
}

/** Of what was answered to bytes: each answer has a status that is known, and the last one an error in the form of REST, or a list. */
export function checkRaw(text: string): Finding {
  if (text === '') return undefined;
  if (!text.startsWith('HTTP/1.1 ')) return fault('form', `no HTTP: ${text.slice(0, 200)}`);
  for (const [, status] of text.matchAll(/HTTP\/1\.1 (\d{3}) /g)) {
    const found = checkStatus({ status: Number(status), headers: { 'retry-after': '?' }, text, isWhole: true });
    if (found) return found;
  }
  return checkWords(text);
}
