/**
 * Identifies callers without credentials, such as old scripts. A site can open some endpoints to callers without
 * credentials.
 */
import type { Request, Response } from 'express';
import { type Endpoint, endpoints } from '../../config/setting-values.js';
import type { Caller } from '../../core/caller.js';
import { logFailure } from '../../core/errors.js';
import { createRangeTest } from '../../core/net/address-ranges.js';
import { isBefore } from '../../core/time.js';
import { addLegacyUses, type CountedUses } from '../../domain/access/legacy-uses.js';
import type { Context } from '../../domain/context.js';
import { addressOf, findForwarded, isProxied } from '../http/address.js';
import { routeOf } from '../http/routes.js';
import { toCaller } from './callers.js';
import { unauthenticated } from './credentials.js';

/**
 * Milliseconds for which counts are collected before they are written to the database. A killed process loses unwritten
 * counts.
 */
const WRITE_MS = 5000;

/**
 * Maximum number of combinations of endpoint, address and user that are counted separately in a day. Requests with any
 * further combination are counted only by endpoint, so that clients cannot fill the table.
 */
const MAX_KINDS = 10_000;

export class LegacyCallers {
  private readonly ctx: Context;
  private readonly rules: { endpoint: Endpoint; isOpenTo: (address: string) => boolean }[];
  private counted = new Map<string, CountedUses>();
  private kinds = { uses: new Set<string>(), refused: new Set<string>() };
  private kindsDay = '';
  private timer: NodeJS.Timeout | undefined;
  private writing: Promise<void> = Promise.resolve();

  constructor(ctx: Context) {
    this.ctx = ctx;
    this.rules = ctx.config.access.legacy.map(({ endpoint, ranges }) => ({
      endpoint,
      isOpenTo: ranges === undefined ? () => true : createRangeTest(ranges),
    }));
  }

  /**
   * @returns an anonymous caller; undefined if the client's address is not allowed to use the endpoint without
   * credentials
   * @throws HttpError 401 for a caller behind an unlisted proxy
   */
  async find(req: Request, res: Response): Promise<Caller | undefined> {
    const endpoint = endpointOf(req);
    const address = addressOf(req);
    const isOpen = this.rules.some((rule) => rule.endpoint === endpoint && rule.isOpenTo(address ?? ''));
    if (endpoint === undefined || !isOpen) return undefined;
    const forwarded = findForwarded(req);
    if (forwarded !== undefined && !isProxied(req)) {
      throw unauthenticated(
        `requests through a proxy that is not listed in TAPEGATE_PROXY_ADDRESSES must have a token (found: ${forwarded})`,
      );
    }
    // count the request when the response ends, because the user's name might be in the request body
    res.once('close', () => this.count('uses', endpoint, req, nameUser(req, res)));
    return await toCaller(this.ctx, { name: 'anybody', way: 'legacy', roles: new Set(['legacy']), address });
  }

  recordRefused(req: Request): void {
    const endpoint = endpointOf(req);
    if (endpoint !== undefined && req.headers.authorization === undefined)
      this.count('refused', endpoint, req, nameInPath(req));
  }

  async close(): Promise<void> {
    clearTimeout(this.timer);
    this.write();
    await this.writing;
  }

  private count(what: 'uses' | 'refused', endpoint: Endpoint, req: Request, user: string): void {
    const address = addressOf(req) ?? '';
    this.ctx.log.debug({ endpoint, address, user, what }, 'request without credentials');
    const lastAt = this.ctx.now();
    const isCountedSeparately = this.isCountedSeparately(
      what,
      lastAt.slice(0, 10),
      JSON.stringify([endpoint, address, user]),
    );
    const use = isCountedSeparately ? { endpoint, address, user } : { endpoint, address: '', user: '' };
    this.add({ ...use, uses: 0, refused: 0, [what]: 1, lastAt });
    this.timer ??= setTimeout(() => this.write(), WRITE_MS).unref();
  }

  private add(use: CountedUses): void {
    const key = JSON.stringify([use.endpoint, use.address, use.user, use.lastAt.slice(0, 10)]);
    const before = this.counted.get(key);
    const lastAt = before && isBefore(use.lastAt, before.lastAt) ? before.lastAt : use.lastAt;
    const [uses, refused] = [use.uses + (before?.uses ?? 0), use.refused + (before?.refused ?? 0)];
    this.counted.set(key, { ...use, uses, refused, lastAt });
  }

  private isCountedSeparately(what: 'uses' | 'refused', day: string, kind: string): boolean {
    if (day !== this.kindsDay) this.kinds = { uses: new Set(), refused: new Set() };
    this.kindsDay = day;
    const kinds = this.kinds[what];
    if (kinds.size < MAX_KINDS) kinds.add(kind);
    return kinds.has(kind);
  }

  private write(): void {
    this.timer = undefined;
    this.writing = this.writing.then(async () => {
      const counted = this.counted;
      if (counted.size === 0) return;
      this.counted = new Map();
      try {
        await addLegacyUses(this.ctx, [...counted.values()]);
        this.ctx.log.info(
          { uses: [...counted.values()].slice(0, 20), kinds: counted.size },
          'requests without credentials',
        );
      } catch (error) {
        logFailure(this.ctx.log, error, 'cannot record requests that were sent without credentials; retrying');
        this.putBack(counted);
      }
    });
  }

  private putBack(counted: ReadonlyMap<string, CountedUses>): void {
    for (const use of counted.values()) this.add(use);
    this.timer ??= setTimeout(() => this.write(), WRITE_MS).unref();
  }
}

const CONTRACT = '/tape_control/api/v1';

export function endpointOf({ baseUrl, path, method }: Request): Endpoint | undefined {
  if (baseUrl.toLowerCase() !== CONTRACT) return undefined;
  const route = routeOf(CONTRACT + path).slice(CONTRACT.length);
  const request = `${method === 'HEAD' ? 'GET' : method} ${route}`;
  return endpoints.find((endpoint) => endpoint === request);
}

function nameUser(req: Request, res: Response): string {
  return nameInPath(req) || (typeof res.locals.quota === 'string' ? clean(res.locals.quota) : '');
}

function nameInPath({ path }: Request): string {
  const [, inPath = ''] = /^\/quota\/([^/]+)/.exec(path) ?? [];
  try {
    return clean(decodeURIComponent(inPath));
  } catch {
    return ''; // the path contains invalid percent-encoding
  }
}

/** Returns a user name in a form that the database accepts; empty if the name contains NUL or is too long. */
function clean(user: string): string {
  return user.length <= 1000 && !user.includes('\0') ? user.toWellFormed() : '';
}
