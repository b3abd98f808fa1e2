/** Where a site's tape API is: asked for once, and again when it is not found there any more. */
import { quote } from '../../errors.js';
import { LibraryError } from '../backend.js';
import { readText } from '../http/body.js';
import type { SiteClient } from '../http/client.js';
import { nameOf } from '../http/exchange.js';
import { type Problem, readProblem, toLibraryError } from '../http/problems.js';
import { untilAborted } from '../until-aborted.js';
import type { WlcgSettings } from './settings.js';

const MAX_ANSWER = 1024 * 1024;

/** A demand that is not found says little of the base: it is not looked for anew for each of them. */
const FRESH_MS = 60_000;

const VERSION = /^v?1(\.\d+)*$/i;

export class Discovery {
  private readonly client: SiteClient;
  private readonly settings: WlcgSettings;
  private known: { base: string; at: number } | undefined;
  private looking: Promise<string> | undefined;

  constructor(client: SiteClient, settings: WlcgSettings) {
    this.client = client;
    this.settings = settings;
  }

  /** @returns the base of all calls, without a slash at its end @throws LibraryError, RetryLaterError, the signal's reason */
  async find(signal: AbortSignal): Promise<string> {
    signal.throwIfAborted();
    if (this.known) return this.known.base;
    // for all who wait for it: it ends by its limits of time, and not with the first who asked
    this.looking ??= this.look().finally(() => {
      this.looking = undefined;
    });
    return await untilAborted(this.looking, signal);
  }

  /**
   * @param isSure whatever was known is wrong
   * @returns the new base, where there is one
   */
  async findMoved(base: string, { isSure }: { isSure: boolean }, signal: AbortSignal): Promise<string | undefined> {
    const { known } = this;
    if (known && known.base === base && (isSure || Date.now() - known.at > FRESH_MS)) this.forget();
    const found = await this.find(signal);
    return found === base ? undefined : found;
  }

  forget(): void {
    this.known = undefined;
  }

  /** All who wait for it wait for as long as it may take at most, and no longer: a server may never come to the end of its answer. */
  private async look(): Promise<string> {
    const { discoveryUrl, limits } = this.settings;
    const ms = limits.connectMs + limits.answerMs;
    const signal = AbortSignal.timeout(ms);
    try {
      return await this.ask(signal);
    } catch (error) {
      if (!signal.aborted) throw error;
      const text = `${nameOf(discoveryUrl)} has not told within ${ms / 1000} s where the tape API is`;
      throw new LibraryError('TRANSIENT', text, { cause: error });
    }
  }

  private async ask(signal: AbortSignal): Promise<string> {
    const { discoveryUrl } = this.settings;
    const reply = await this.client.send({ url: discoveryUrl, headers: { accept: 'application/json' }, signal });
    if (reply.response.statusCode !== 200) throw notFound(await readProblem(reply, signal));
    const text = await readText(reply, { maxBytes: MAX_ANSWER, signal });
    const base = this.choose(text);
    this.known = { base, at: Date.now() };
    return base;
  }

  /** The first of version 1: a site has one element for each version. */
  private choose(text: string): string {
    const where = nameOf(this.settings.discoveryUrl);
    const endpoints = readEndpoints(text);
    if (!endpoints)
      throw new LibraryError('TRANSIENT', `${where} does not tell endpoints of a tape API, but ${quote(text)}`);
    const found = endpoints.find(({ version }) => VERSION.test(version));
    if (!found) {
      const versions = endpoints.map(({ version }) => quote(version)).join(', ') || 'none';
      throw new LibraryError('PERMANENT', `${where} tells versions ${versions} of the tape API, and Tapegate knows v1`);
    }
    if (!URL.canParse(found.uri, this.settings.discoveryUrl)) {
      throw new LibraryError('PERMANENT', `${where} says that the tape API is at ${quote(found.uri)}, which is no URL`);
    }
    return this.check(new URL(found.uri, this.settings.discoveryUrl));
  }

  private check(url: URL): string {
    const where = `${nameOf(this.settings.discoveryUrl)} says that the tape API is at ${nameOf(url)}`;
    if (url.protocol !== 'https:' && url.protocol !== this.settings.discoveryUrl.protocol) {
      throw new LibraryError('POLICY', `${where}, which is not asked: it is no https`);
    }
    const { token, identity, trusted } = this.settings;
    if ((token || identity.cert) && !trusted.has(url.origin)) {
      throw new LibraryError('POLICY', `${where}, which gets no token before tokenOrigins has ${quote(url.origin)}`);
    }
    return nameOf(url).replace(/\/+$/, '');
  }
}

/** A site that has no such document has no tape API, or another place for it. */
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
