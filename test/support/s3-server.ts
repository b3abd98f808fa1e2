/**
 * A simulated S3 server on this host with one bucket. The server is as strict as S3 about archive classes and
 * credentials.
 * Tests can cause errors, lost answers and broken bodies.
 */
import { once } from 'node:events';
import http, { type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { invalidState, S3Error, S3Store, type StoredObject } from './s3-store.js';

export type S3Operation = 'ListObjectsV2' | 'HeadObject' | 'GetObject' | 'RestoreObject';

interface S3Account {
  accessKeyId: string;
  secretAccessKey: string;
  region: string;
}

export interface S3Request {
  operation: S3Operation;
  /** Key of the object; empty for a list. */
  key: string;
  query: URLSearchParams;
  headers: IncomingMessage['headers'];
}

export interface S3Server {
  url: string;
  bucket: string;
  account: S3Account;
  store: S3Store;
  /** All requests in order. */
  asked: S3Request[];
  /** Hook that runs before each answer. The hook may wait, or return an error to answer with. */
  onRequest: (request: S3Request) => Promise<S3Error | undefined>;
  /** Number of answers to lose, by operation. A lost answer's operation is still executed. */
  lost: Map<S3Operation, number>;
  /** Breaks the body of the next GetObject after this many bytes: the connection is closed or stalls. */
  broken: { after: number; how: 'cut' | 'stalled' } | undefined;
  /** Number of GetObject responses in progress. */
  reads: number;
  count(operation: S3Operation): number;
  close(): Promise<void>;
}

/** @param isPublic whether objects can be read without a signature, as in a public bucket */
export async function startS3Server({ bucket = 'archive', isPublic = false } = {}): Promise<S3Server> {
  const account = { accessKeyId: 'AKIATESTS', secretAccessKey: 'a secret of tests', region: 'eu-test-1' };
  const listener = http.createServer((req, res) => {
    serve(server, req, res, isPublic).catch((error: unknown) => answerError(req, res, error));
  });
  listener.listen(0, '127.0.0.1');
  await once(listener, 'listening');
  const server: S3Server = {
    url: `http://127.0.0.1:${(listener.address() as AddressInfo).port}`,
    bucket,
    account,
    store: new S3Store(),
    asked: [],
    onRequest: async () => undefined,
    lost: new Map(),
    broken: undefined,
    reads: 0,
    count: (operation) => server.asked.filter((each) => each.operation === operation).length,
    close: async () => {
      listener.closeAllConnections();
      await new Promise((resolve) => listener.close(resolve));
    },
  };
  return server;
}

async function serve(server: S3Server, req: IncomingMessage, res: ServerResponse, isPublic: boolean): Promise<void> {
  const body = Buffer.concat(await req.toArray());
  const [path = '', query = ''] = (req.url ?? '').split('?');
  const [, bucket = '', rest = ''] = /^\/([^/]*)\/?(.*)$/s.exec(path) ?? [];
  const request = { key: decodeURIComponent(rest), query: new URLSearchParams(query), headers: req.headers };
  const operation = operationOf(req.method ?? '', request.key, request.query);
  server.asked.push({ ...request, operation });
  const isOpen = isPublic && operation === 'GetObject' && req.headers.authorization === undefined;
  if (!isOpen) checkCredentials(req, server.account);
  if (bucket !== server.bucket) throw new S3Error(404, 'NoSuchBucket', { BucketName: bucket });
  const outcome = await answer(server, { ...request, operation }, body);
  const left = server.lost.get(operation) ?? 0;
  if (left > 0) {
    server.lost.set(operation, left - 1);
    req.socket.destroy();
  } else if (outcome instanceof S3Error) throw outcome;
  else send(server, res, outcome, operation);
}

/**
 * Checks the access key and region of a request, but not the signature, which the AWS SDK creates.
 * @throws S3Error with the error that S3 returns
 */
function checkCredentials({ headers }: IncomingMessage, account: S3Account): void {
  const { authorization } = headers;
  if (authorization === undefined) throw new S3Error(403, 'AccessDenied');
  const [, accessKeyId, region] = / Credential=([^/]+)\/\d{8}\/([^/]+)\/s3\/aws4_request,/.exec(authorization) ?? [];
  if (accessKeyId !== account.accessKeyId) throw new S3Error(403, 'InvalidAccessKeyId');
  if (region !== account.region) throw new S3Error(400, 'AuthorizationHeaderMalformed', { Region: account.region });
}

async function answer(server: S3Server, request: S3Request, body: Buffer): Promise<Answer | S3Error> {
  try {
    return (await server.onRequest(request)) ?? answers[request.operation](server, request, body);
  } catch (error) {
    if (error instanceof S3Error) return error;
    throw error;
  }
}

interface Answer {
  status: number;
  headers: Record<string, string>;
  body: Buffer;
}

function send(server: S3Server, res: ServerResponse, { status, headers, body }: Answer, operation: S3Operation): void {
  res.writeHead(status, { 'x-amz-request-id': 'TESTS', 'Content-Length': body.length, ...headers });
  if (operation !== 'GetObject') return void res.end(operation === 'HeadObject' ? undefined : body);
  server.reads++;
  res.on('close', () => server.reads--);
  const { broken } = server;
  server.broken = undefined;
  if (!broken) res.end(body);
  else res.write(body.subarray(0, broken.after), () => broken.how === 'cut' && res.destroy());
}

function operationOf(method: string, key: string, query: URLSearchParams): S3Operation {
  if (key === '' && method === 'GET' && query.get('list-type') === '2') return 'ListObjectsV2';
  if (key !== '' && method === 'GET') return 'GetObject';
  if (key !== '' && method === 'HEAD') return 'HeadObject';
  if (key !== '' && method === 'POST' && query.has('restore')) return 'RestoreObject';
  throw new S3Error(501, 'NotImplemented');
}

const answers: Record<S3Operation, (server: S3Server, request: S3Request, body: Buffer) => Answer> = {
  ListObjectsV2: list,
  HeadObject: ({ store }, { key, headers }) => {
    const object = store.find(key);
    const told = { ...describe(store, object), ...checksumFor(object, headers) };
    return { status: 200, headers: told, body: object.bytes };
  },
  GetObject: get,
  RestoreObject: ({ store }, { key }, body) => {
    const status = store.restore(key, parseRestoreRequest(body.toString()));
    return { status, headers: {}, body: Buffer.alloc(0) };
  },
};

function get({ store }: S3Server, { key, headers }: S3Request): Answer {
  const object = store.find(key);
  if (!store.isReadable(key)) throw invalidState(object);
  const condition = headers['if-match'];
  if (condition !== undefined && condition !== object.etag) throw new S3Error(412, 'PreconditionFailed');
  const described = describe(store, object);
  if (headers.range === undefined)
    return { status: 200, headers: { ...described, ...checksumFor(object, headers) }, body: object.bytes };
  const [, first, last] = /^bytes=(\d+)-(\d+)$/.exec(headers.range) ?? [];
  if (first === undefined) throw new S3Error(501, 'NotImplemented');
  const size = object.bytes.length;
  if (Number(first) >= size) throw new S3Error(416, 'InvalidRange', { ActualObjectSize: String(size) });
  const end = Math.min(Number(last) + 1, size);
  const range = { 'Content-Range': `bytes ${first}-${end - 1}/${size}` };
  return { status: 206, headers: { ...described, ...range }, body: object.bytes.subarray(Number(first), end) };
}

function describe(
  { restoreHeader }: S3Store,
  { etag, storageClass, archiveStatus, restore }: StoredObject,
): Record<string, string> {
  const date = restore?.until && restoreHeader === 'dated' ? `, expiry-date="${restore.until.toUTCString()}"` : '';
  const expiry = restore?.until && `ongoing-request="false"${date}`;
  return {
    ...(etag && { ETag: etag }),
    'Accept-Ranges': 'bytes',
    ...(storageClass !== 'STANDARD' && { 'x-amz-storage-class': storageClass }),
    ...(archiveStatus && { 'x-amz-archive-status': archiveStatus }),
    ...(restore && restoreHeader !== 'absent' && { 'x-amz-restore': expiry ?? 'ongoing-request="true"' }),
  };
}

/** Returns the checksum headers of a whole object, if the request asks for checksums. */
function checksumFor({ checksum }: StoredObject, headers: S3Request['headers']): Record<string, string> {
  return headers['x-amz-checksum-mode'] === 'ENABLED' ? checksum : {};
}

function parseRestoreRequest(xml: string): { days: number | undefined; tier: string } {
  const form =
    /^(?:<\?xml[^>]*\?>)?<RestoreRequest xmlns="http:\/\/s3\.amazonaws\.com\/doc\/2006-03-01\/">(?:<Days>(\d+)<\/Days>)?<GlacierJobParameters><Tier>(\w+)<\/Tier><\/GlacierJobParameters><\/RestoreRequest>$/;
  const [, days, tier] = form.exec(xml) ?? [];
  if (tier === undefined) throw new S3Error(400, 'MalformedXML');
  return { days: days === undefined ? undefined : Number(days), tier };
}

const PARAMETERS = ['list-type', 'prefix', 'max-keys'];

function list({ store, bucket }: S3Server, { query }: S3Request): Answer {
  const unknown = [...query.keys()].filter((name) => !PARAMETERS.includes(name));
  if (unknown.length > 0) throw new S3Error(400, 'InvalidArgument', { ArgumentName: unknown.join() });
  const found = store.keys().filter((key) => key.startsWith(query.get('prefix') ?? ''));
  const keys = found.slice(0, Number(query.get('max-keys')));
  const contents = keys.map((key) => `<Contents><Key>${escapeXml(key)}</Key></Contents>`);
  const head = `<Name>${bucket}</Name><KeyCount>${keys.length}</KeyCount><IsTruncated>${found.length > keys.length}</IsTruncated>`;
  const body = `${XML}<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">${head}${contents.join('')}</ListBucketResult>`;
  return { status: 200, headers: { 'Content-Type': 'application/xml' }, body: Buffer.from(body) };
}

const XML = '<?xml version="1.0" encoding="UTF-8"?>\n';

function escapeXml(text: string): string {
  return text.replace(/[&<>"]/g, (letter) => `&#${letter.codePointAt(0)};`);
}

function answerError(req: IncomingMessage, res: ServerResponse, error: unknown): void {
  const { status, code, message, members, headers } =
    error instanceof S3Error ? error : new S3Error(500, 'InternalError', { Cause: String(error) });
  const all = Object.entries({ Code: code, Message: message, ...members, RequestId: 'TESTS' });
  const body = `${XML}<Error>${all.map(([name, value]) => `<${name}>${escapeXml(value)}</${name}>`).join('')}</Error>`;
  res.writeHead(status, { 'Content-Type': 'application/xml', 'Content-Length': Buffer.byteLength(body), ...headers });
  res.end(req.method === 'HEAD' ? undefined : body);
}
