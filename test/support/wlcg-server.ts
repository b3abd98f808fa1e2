/**
 * A simulated server of the WLCG Tape REST API, which also serves the bytes of files.
 * The server speaks the dialect of dCache, EOS with CTA, or StoRM Tape, and is as strict as the real server.
 * The specification does not define the answer to a GET of a file on tape, so the dialects answer differently.
 */
import http from 'node:http';
import https from 'node:https';
import type { AddressInfo } from 'node:net';
import { pipeline, Readable } from 'node:stream';
import { TLSSocket } from 'node:tls';
import { promisify } from 'node:util';
import type { Certificate } from './certificate.js';
import { type Answer, type Dialect, type DialectName, dialects, readBodyOf } from './wlcg-dialects.js';
import { FakeStorage, type StageRequest, sanitise } from './wlcg-storage.js';

export interface WlcgServerOptions {
  dialect: DialectName;
  /** Certificate of the server. Without a certificate, the server uses plain HTTP. */
  certificate?: Certificate;
  /** Token that each call must contain. */
  token?: string;
  /** Certificate authority of the certificates that clients must present. */
  clients?: string;
}

type CallKind = 'stage' | 'poll' | 'cancel' | 'delete' | 'release' | 'archiveinfo';

export class WlcgServer {
  readonly storage: FakeStorage;
  readonly dialect: Dialect;
  /** Kinds of all calls in order: `stage`, `poll`, `discovery`, `bytes`, … */
  readonly calls: string[] = [];
  /** Number of reads in progress. */
  reads = 0;
  token: string | undefined;
  sitename = 'fake-site';
  /** Hook that may answer a call instead of the server. */
  onCall: (kind: CallKind, paths: readonly string[]) => Answer | undefined = () => undefined;
  onDiscovery: (() => Answer) | undefined;
  /** Hook that may answer a read instead of the server, and then returns true. */
  onBytes: (request: http.IncomingMessage, response: http.ServerResponse, bytes: Buffer) => boolean = () => false;
  origin = '';
  private base: string;
  private busySeconds: number | undefined;
  private readonly lost = new Set<CallKind>();
  private readonly servers: http.Server[];
  private poolOrigin = '';
  private readonly digests = new WeakMap<Buffer, Record<string, string>>();

  constructor({ dialect, certificate, token, clients }: WlcgServerOptions) {
    this.dialect = { ...dialects[dialect] };
    this.base = this.dialect.base;
    this.storage = new FakeStorage({ evicts: this.dialect.releases });
    this.token = token;
    const asked = clients === undefined ? {} : { ca: clients, requestCert: true };
    const create = (handle: http.RequestListener, rejectUnauthorized = false) => {
      if (!certificate) return http.createServer(handle);
      return https.createServer({ ...certificate, ...asked, rejectUnauthorized }, handle);
    };
    this.servers = [
      create((request, response) => {
        this.serve(request, response).catch((error) => response.destroy(error));
      }, clients !== undefined),
      create((request, response) => this.servePool(request, response)),
    ];
  }

  async listen(): Promise<void> {
    const origins = this.servers.map(async (server) => {
      await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
      const { port } = server.address() as AddressInfo;
      return `${server instanceof https.Server ? 'https' : 'http'}://127.0.0.1:${port}`;
    });
    [this.origin = '', this.poolOrigin = ''] = await Promise.all(origins);
  }

  async close(): Promise<void> {
    for (const server of this.servers) {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    }
  }

  lose(call: CallKind): void {
    this.lost.add(call);
  }

  busy(forSeconds: number): void {
    this.busySeconds = forSeconds;
  }

  async countConnections(): Promise<number> {
    const counts = this.servers.map((server) => promisify(server.getConnections.bind(server))());
    return (await Promise.all(counts)).reduce((sum, count) => sum + count, 0);
  }

  closeConnections(): void {
    for (const server of this.servers) server.closeAllConnections();
  }

  moveBase(base: string): void {
    this.base = base;
  }

  private async serve(request: http.IncomingMessage, response: http.ServerResponse): Promise<void> {
    const { pathname } = new URL(request.url ?? '', this.origin);
    if (pathname === '/.well-known/wlcg-tape-rest-api') {
      this.calls.push('discovery');
      return send(response, this.onDiscovery?.() ?? { status: 200, body: this.describe() });
    }
    if (this.token !== undefined && request.headers.authorization !== `Bearer ${this.token}`) {
      return send(response, this.dialect.problem(401, 'Unauthorized', 'the token is not known'));
    }
    const base = this.base.replace(/\/$/, '');
    if (pathname.startsWith(`${base}/`)) return await this.serveCall(request, response, pathname.slice(base.length));
    if (pathname.startsWith('/api/') || pathname.startsWith('/tape/')) return send(response, { status: 404 });
    this.calls.push('bytes');
    const path = sanitise(decodeURIComponent(pathname));
    if (!this.dialect.hasPool) return this.serveBytes(request, response, path);
    const target = `${this.poolOrigin}${pathname}?uuid=of-this-read`;
    if (this.findBytes(path) === undefined) return this.serveBytes(request, response, path);
    response.writeHead(302, { location: target, 'content-length': '0' }).end();
  }

  /**
   * Serves bytes as a dCache pool does: the id of the read is enough. Rejects requests that also contain credentials.
   */
  private servePool(request: http.IncomingMessage, response: http.ServerResponse): void {
    const { pathname, searchParams } = new URL(request.url ?? '', this.poolOrigin);
    const { socket } = request;
    const isShown = socket instanceof TLSSocket && Object.keys(socket.getPeerCertificate() ?? {}).length > 0;
    const isTold = isShown || request.headers.authorization !== undefined;
    if (searchParams.get('uuid') === 'of-this-read' && !isTold)
      this.serveBytes(request, response, sanitise(decodeURIComponent(pathname)));
    else send(response, { status: 400 });
  }

  private describe(): unknown {
    const uri = `${this.origin}${this.base}`;
    return { sitename: this.sitename, description: null, endpoints: [{ uri, version: 'v1', metadata: {} }] };
  }

  private async serveCall(request: http.IncomingMessage, response: http.ServerResponse, place: string): Promise<void> {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk);
    const text = Buffer.concat(chunks).toString();
    const [, name = '', rawId = '', cancel = ''] = /^\/(\w+)(?:\/([^/]+))?(?:\/(\w+))?$/.exec(place) ?? [];
    const kind = kindOf(request.method ?? '', name, rawId, cancel);
    if (!kind) return send(response, { status: 405 });
    this.calls.push(kind);
    if (this.busySeconds !== undefined) {
      const retry = { 'retry-after': String(this.busySeconds) };
      this.busySeconds = undefined;
      return send(response, { status: this.dialect.busy, headers: retry });
    }
    const answer = this.answer(kind, decodeURIComponent(rawId), { text, type: request.headers['content-type'] });
    if (this.lost.delete(kind)) request.socket.destroy();
    else send(response, answer);
  }

  private answer(kind: CallKind, id: string, { text, type }: { text: string; type: string | undefined }): Answer {
    const { dialect, storage } = this;
    let paths: string[] = [];
    if (kind !== 'poll' && kind !== 'delete') {
      if (type !== 'application/json') return dialect.problem(415, 'Unsupported Media Type', `not ${type}`);
      const read = readBodyOf(dialect, kind === 'stage' ? 'files' : 'paths', text);
      if (typeof read === 'string') return dialect.problem(400, 'Bad Request', read);
      paths = read;
    }
    const special = this.onCall(kind, paths);
    if (special) return special;
    if (paths.length > dialect.maxFiles)
      return dialect.problem(413, 'Payload Too Large', `${dialect.maxFiles} at most`);
    if (kind === 'archiveinfo') return { status: 200, body: paths.map((path) => this.describeFile(path)) };
    if (kind === 'stage') {
      const request = storage.stage(paths);
      const location = `${this.origin}${this.base.replace(/\/$/, '')}/stage/${request.id}`;
      return { status: 201, headers: { location }, body: { requestId: request.id } };
    }
    const request = storage.requests.get(id);
    if (!request) return dialect.problem(404, 'Not Found', `there is no request ${id}`);
    if (kind === 'poll') return { status: 200, body: dialect.poll(request) };
    return this.change(kind, request, paths);
  }

  private change(kind: CallKind, request: StageRequest, paths: readonly string[]): Answer {
    const { dialect, storage } = this;
    const foreign = paths.find((path) => !request.files.has(sanitise(path)));
    const isChecked = kind === 'cancel' || (kind === 'release' && dialect.checksReleases);
    if (isChecked && foreign !== undefined) {
      return dialect.problem(400, 'Bad Request', `a path is not of the request ${request.id}`);
    }
    if (kind === 'cancel') storage.cancel(request, paths, dialect.recallsGoOn);
    else if (kind === 'delete') storage.delete(request);
    else if (dialect.releases) storage.release(request, paths);
    return { status: 200 };
  }

  private describeFile(given: string): unknown {
    const path = sanitise(given);
    const locality = this.storage.locality(path);
    if (locality === undefined) return { path, error: 'No such file or directory' };
    return { path: this.dialect.echoes ? given : path, locality: this.dialect.localityOf(locality) };
  }

  private findBytes(path: string): Buffer | undefined {
    const bytes = this.storage.tape.get(path);
    return bytes && (bytes.length === 0 || this.storage.disk.has(path)) ? bytes : undefined;
  }

  private serveBytes(request: http.IncomingMessage, response: http.ServerResponse, path: string): void {
    const bytes = this.findBytes(path);
    if (!bytes) {
      const status = this.storage.tape.has(path) ? this.dialect.notOnDisk : 404;
      send(response, this.dialect.problem(status, 'the file is not served', 'it is not on disk'));
      return;
    }
    this.reads++;
    response.once('close', () => this.reads--);
    if (this.onBytes(request, response, bytes)) return;
    const [, from] = /^bytes=(\d+)-$/.exec(request.headers.range ?? '') ?? [];
    const start = Number(from ?? 0);
    if (from !== undefined && start >= bytes.length) {
      response.writeHead(416, { 'content-range': `bytes */${bytes.length}` }).end();
      return;
    }
    const wanted = `${request.headers['want-digest'] ?? ''}${request.headers['want-repr-digest'] ?? ''}`;
    response.writeHead(from === undefined ? 200 : 206, {
      'content-length': String(bytes.length - start),
      ...(from === undefined ? {} : { 'content-range': `bytes ${start}-${bytes.length - 1}/${bytes.length}` }),
      ...(wanted === '' ? {} : this.digestOf(bytes)),
    });
    if (bytes.length - start <= PIECE_BYTES) response.end(bytes.subarray(start));
    else pipeline(Readable.from(piecesOf(bytes.subarray(start))), response, () => {}); // the client may leave early
  }

  private digestOf(bytes: Buffer): Record<string, string> {
    const digest = this.digests.get(bytes) ?? this.dialect.digest(bytes);
    this.digests.set(bytes, digest);
    return digest;
  }
}

/** Size of the pieces of a response. Like a storage element, the server encrypts only the pieces that it is sending. */
const PIECE_BYTES = 256 * 1024;

function* piecesOf(bytes: Buffer): Generator<Buffer> {
  for (let at = 0; at < bytes.length; at += PIECE_BYTES) yield bytes.subarray(at, at + PIECE_BYTES);
}

function kindOf(method: string, name: string, id: string, cancel: string): CallKind | undefined {
  const form = `${method} ${name}${id === '' ? '' : '/id'}${cancel === '' ? '' : `/${cancel}`}`;
  const kinds: Record<string, CallKind> = {
    'POST stage': 'stage',
    'GET stage/id': 'poll',
    'POST stage/id/cancel': 'cancel',
    'DELETE stage/id': 'delete',
    'POST release/id': 'release',
    'POST archiveinfo': 'archiveinfo',
  };
  return kinds[form];
}

function send(response: http.ServerResponse, { status, headers = {}, body }: Answer): void {
  const text = body === undefined ? '' : JSON.stringify(body);
  const type = body === undefined ? {} : { 'content-type': 'application/json' };
  response.writeHead(status, { ...type, ...headers, 'content-length': String(Buffer.byteLength(text)) }).end(text);
}
