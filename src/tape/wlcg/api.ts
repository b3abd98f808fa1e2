/** Sends requests to the WLCG Tape REST API, version 1, and handles differences between servers. */
import { quote, TapeError } from '../../core/errors.js';
import { LibraryError } from '../drive-library.js';
import { nameOf, readText } from '../http/exchange.js';
import { type Problem, readProblem, toLibraryError } from '../http/problems.js';
import type { Reply, SiteClient } from '../http/site-client.js';
import { untilAborted } from '../until-aborted.js';
import { CallRefusedError, Parts } from './parts.js';
import { type Locality, readLocalities, readStageAnswer, type StageAnswer } from './responses.js';
import type { WlcgSettings } from './settings.js';

const MAX_ANSWER = 32 * 1024 * 1024;

interface Sent {
  method: 'GET' | 'POST' | 'DELETE';
  path: string;
  body?: object;
  /** HTTP error statuses for which `call` does not throw an error, because its caller handles them. */
  also?: readonly number[];
}

const REFUSALS = [400, 413];

export class TapeApi {
  private readonly client: SiteClient;
  private readonly discovery: Discovery;
  private readonly settings: WlcgSettings;
  readonly parts: { stage: Parts; info: Parts; release: Parts };

  constructor(client: SiteClient, settings: WlcgSettings) {
    this.client = client;
    this.settings = settings;
    const { stageFiles, infoFiles, releaseFiles } = settings;
    this.parts = { stage: new Parts(stageFiles), info: new Parts(infoFiles), release: new Parts(releaseFiles) };
    this.discovery = new Discovery(client, settings);
  }

  /**
   * Sends one stage request of at most `parts.stage.size` paths.
   * @returns the id of the stage request
   * @throws CallRefusedError if the server refuses the call. All methods can also throw LibraryError, RetryLaterError
   * and the signal's reason
   */
  async stage(paths: readonly string[], signal: AbortSignal): Promise<string> {
    const { diskLifetime, targetedMetadata } = this.settings;
    const files = paths.map((path) => ({ path, diskLifetime, targetedMetadata }));
    const reply = await this.call({ method: 'POST', path: '/stage', body: { files }, also: REFUSALS }, signal);
    await refuse(reply, signal);
    const { requestId } = ((await readJson(reply)) ?? {}) as { requestId?: unknown };
    const id = toId(requestId) ?? toId(lastOf(reply.response.headers.location ?? ''));
    if (id !== undefined) return id;
    throw new LibraryError('TRANSIENT', `${reply.name} accepted the files but returned no request id`);
  }

  /**
   * Returns the states of the files in a stage request, keyed by remote path; undefined if the server does not know the
   * stage request.
   */
  async poll(id: string, signal: AbortSignal): Promise<Map<string, StageAnswer> | undefined> {
    const reply = await this.call({ method: 'GET', path: requestPath(id), also: [400, 404, 410] }, signal);
    if (isFine(reply)) return readStageAnswer(await readJson(reply));
    await readProblem(reply, signal);
    return undefined;
  }

  /**
   * Cancels the staging of files that have not arrived on disk. Also succeeds if the server does not know the stage
   * request.
   */
  async cancel(id: string, paths: readonly string[], signal: AbortSignal): Promise<void> {
    await this.commandParts(`${requestPath(id)}/cancel`, paths, signal);
  }

  /** Releases files in a stage request. The server ignores paths outside the stage request. */
  async release(id: string, paths: readonly string[], signal: AbortSignal): Promise<void> {
    await this.commandParts(`/release/${encodeURIComponent(id)}`, paths, signal);
  }

  async delete(id: string, signal: AbortSignal): Promise<void> {
    await this.command({ method: 'DELETE', path: requestPath(id) }, signal);
  }

  /**
   * Returns the locality of each file, such as `TAPE`, keyed by remote path. Omits paths that the server's responses do
   * not contain.
   */
  async findLocalities(paths: readonly string[], signal: AbortSignal): Promise<Map<string, Locality>> {
    const ask = async (part: readonly string[]) => {
      const found = new Map<string, Locality>();
      for (let open = part; open.length > 0; ) {
        const reply = await this.call(
          { method: 'POST', path: '/archiveinfo', body: { paths: open }, also: REFUSALS },
          signal,
        );
        await refuse(reply, signal);
        const reported = readLocalities(await readJson(reply));
        for (const [path, locality] of reported) found.set(path, locality);
        const missing = open.filter((path) => !reported.has(path));
        // the server might report only some of the paths: request the remaining paths
        open = missing.length < open.length ? missing : [];
      }
      return found;
    };
    const onRefused = (path: string, { message }: Error) => new Map([[path, { locality: undefined, said: message }]]);
    const found = await this.parts.info.send(paths, ask, onRefused);
    return new Map(found.flatMap((part) => [...part]));
  }

  private async commandParts(path: string, paths: readonly string[], signal: AbortSignal): Promise<void> {
    const send = (part: readonly string[]) => this.command({ method: 'POST', path, body: { paths: part } }, signal);
    await this.parts.release.send(paths, send, () => {});
  }

  private async command(sent: Sent, signal: AbortSignal): Promise<void> {
    const reply = await this.call({ ...sent, also: [...REFUSALS, 404, 410] }, signal);
    if (isFine(reply)) await readText(reply, MAX_ANSWER);
    else if (reply.response.statusCode === 404 || reply.response.statusCode === 410) await readProblem(reply, signal);
    else await refuse(reply, signal);
  }

  /**
   * Sends a request. After status 404, reads the discovery document again, because the API's URL might have changed. If
   * the URL has changed, sends the request to the new URL.
   */
  private async call(sent: Sent, signal: AbortSignal): Promise<Reply> {
    const base = await this.discovery.find(signal);
    let reply = await this.send(base, sent, signal);
    if (reply.response.statusCode === 404) {
      this.discovery.forget();
      const now = await this.discovery.find(signal);
      if (now !== base) {
        await readProblem(reply, signal);
        reply = await this.send(now, sent, signal);
      }
    }
    if (isFine(reply) || sent.also?.includes(reply.response.statusCode)) return reply;
    throw toLibraryError(await readProblem(reply, signal));
  }

  private async send(base: string, { method, path, body }: Sent, signal: AbortSignal): Promise<Reply> {
    const url = new URL(`${base}${path}`);
    const call = { method, url, signal };
    try {
      if (!body) return await this.client.send({ ...call, headers: { accept: 'application/json' } });
      const headers = { accept: 'application/json', 'content-type': 'application/json' };
      return await this.client.send({ ...call, headers, body: JSON.stringify(body) });
    } catch (error) {
      // read the discovery document again for the next request, because another server might have replaced the failed
      // server
      if (!signal.aborted && error instanceof LibraryError) this.discovery.forget();
      throw error;
    }
  }
}

/**
 * Returns a valid id as a string; undefined for an invalid id. `.` and `..` are invalid, because they would be dot
 * segments in a URL.
 */
function toId(given: unknown): string | undefined {
  const id = typeof given === 'number' ? String(given) : given;
  return typeof id === 'string' && !['', '.', '..'].includes(id) && id.isWellFormed() ? id : undefined;
}

function lastOf(location: string): string | undefined {
  const [, last = ''] = /([^/]+)\/*$/.exec(location) ?? [];
  try {
    return decodeURIComponent(last);
  } catch {
    return last;
  }
}

function requestPath(id: string): string {
  return `/stage/${encodeURIComponent(id)}`;
}

function isFine({ response }: Reply): boolean {
  return [200, 201, 202, 204].includes(response.statusCode);
}

async function refuse(reply: Reply, signal: AbortSignal): Promise<void> {
  if (!isFine(reply)) throw new CallRefusedError(await readProblem(reply, signal));
}

async function readJson(reply: Reply): Promise<unknown> {
  const text = await readText(reply, MAX_ANSWER);
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new LibraryError('TRANSIENT', `${reply.name} did not return JSON: ${JSON.stringify(text.slice(0, 100))}`, {
      cause: error,
    });
  }
}

/** Ignores TapeErrors from a call that is allowed to fail. A later call reports the error if its cause persists. */
export async function attempt(work: Promise<unknown>): Promise<void> {
  await work.catch((error: unknown) => {
    if (!(error instanceof TapeError)) throw error;
  });
}

const MAX_DISCOVERY = 1024 * 1024;

const VERSION = /^v?1(\.\d+)*$/i;

class Discovery {
  private readonly client: SiteClient;
  private readonly settings: WlcgSettings;
  private known: string | undefined;
  private discovering: Promise<string> | undefined;

  constructor(client: SiteClient, settings: WlcgSettings) {
    this.client = client;
    this.settings = settings;
  }

  /**
   * @returns the base URL of the API, without a trailing slash
   * @throws LibraryError; RetryLaterError; the signal's reason if the signal aborts
   */
  async find(signal: AbortSignal): Promise<string> {
    signal.throwIfAborted();
    if (this.known !== undefined) return this.known;
    // do not abort the discovery request when one caller aborts, because all callers share this request
    this.discovering ??= this.discover().finally(() => {
      this.discovering = undefined;
    });
    return await untilAborted(this.discovering, signal);
  }

  forget(): void {
    this.known = undefined;
  }

  /** Finds the base URL of the API. Limits the total time of this search, because all callers wait for the result. */
  private async discover(): Promise<string> {
    const { discoveryUrl, limits } = this.settings;
    const ms = limits.connectMs + limits.answerMs;
    const signal = AbortSignal.timeout(ms);
    try {
      return await this.ask(signal);
    } catch (error) {
      if (!signal.aborted) throw error;
      const text = `${nameOf(discoveryUrl)} did not report the address of the tape API within ${ms / 1000} s`;
      throw new LibraryError('TRANSIENT', text, { cause: error });
    }
  }

  private async ask(signal: AbortSignal): Promise<string> {
    const { discoveryUrl } = this.settings;
    const reply = await this.client.send({ url: discoveryUrl, headers: { accept: 'application/json' }, signal });
    if (reply.response.statusCode !== 200) throw notFound(await readProblem(reply, signal));
    const text = await readText(reply, MAX_DISCOVERY);
    this.known = this.choose(text);
    return this.known;
  }

  /** Chooses an endpoint from the discovery document: the first endpoint for version 1 of the API. */
  private choose(text: string): string {
    const where = nameOf(this.settings.discoveryUrl);
    const endpoints = readEndpoints(text);
    if (!endpoints)
      throw new LibraryError('TRANSIENT', `${where} must return a list of tape API endpoints, not ${quote(text)}`);
    const found = endpoints.find(({ version }) => VERSION.test(version));
    if (!found) {
      const versions = endpoints.map(({ version }) => quote(version)).join(', ') || 'none';
      throw new LibraryError(
        'PERMANENT',
        `${where} reports versions ${versions} of the tape API, but Tapegate supports v1`,
      );
    }
    if (!URL.canParse(found.uri, this.settings.discoveryUrl)) {
      throw new LibraryError('PERMANENT', `${where} reports the tape API at ${quote(found.uri)}, which is not a URL`);
    }
    return this.check(new URL(found.uri, this.settings.discoveryUrl));
  }

  private check(url: URL): string {
    const where = `${nameOf(this.settings.discoveryUrl)} reports the tape API at ${nameOf(url)}`;
    if (url.protocol !== 'https:' && url.protocol !== this.settings.discoveryUrl.protocol) {
      throw new LibraryError('POLICY', `${where}, which Tapegate does not use because the scheme is not https`);
    }
    const { token, identity, trusted } = this.settings;
    if ((token || identity.cert) && !trusted.has(url.origin)) {
      throw new LibraryError(
        'POLICY',
        `${where}, which receives the token only if tokenOrigins contains ${quote(url.origin)}`,
      );
    }
    return nameOf(url).replace(/\/+$/, '');
  }
}

/** Returns the error to throw if the request for the discovery document fails. */
function notFound(problem: Problem): LibraryError {
  const isNone = problem.status === 404 || problem.status === 410;
  return isNone ? new LibraryError('PERMANENT', problem.text) : toLibraryError(problem);
}

function readEndpoints(text: string): { uri: string; version: string }[] | undefined {
  try {
    const { endpoints } = JSON.parse(text) as { endpoints?: unknown };
    if (!Array.isArray(endpoints)) return undefined;
    return endpoints
      .filter((each) => typeof each?.uri === 'string')
      .map(({ uri, version }) => ({ uri, version: String(version ?? '') }));
  } catch {
    return undefined;
  }
}
