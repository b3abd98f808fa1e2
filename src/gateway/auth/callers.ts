/** Determines an authenticated caller's rights. */
import { LRUCache } from 'lru-cache';
import type { AccessConfig } from '../../config/config.js';
import type { Caller, Quotas, Role, Way } from '../../core/caller.js';
import { quote } from '../../core/errors.js';
import { namesOfIssuer } from '../../core/net/issuer-urls.js';
import { readRights } from '../../domain/access/members.js';
import type { Context } from '../../domain/context.js';
import { isPlainName, isReserved, isStorable } from '../../domain/input.js';
import { unauthenticated } from './credentials.js';

export interface Identity {
  name: string;
  way: Way;
  roles: ReadonlySet<Role>;
  groups?: readonly string[];
  /** Users on whose behalf a service account is allowed to act. */
  quotas?: readonly string[];
  isReadOnly?: boolean;
  isScoped?: boolean;
  tokenId?: number | undefined;
  expiresAt?: string | undefined;
  address?: string | undefined;
}

const KNOWN_MS = 2000;

export class KnownCallers {
  private readonly ctx: Context;
  private readonly recent = new Recent<Caller>(KNOWN_MS);

  constructor(ctx: Context) {
    this.ctx = ctx;
    for (const signal of ['access', 'rights']) ctx.events.onNotify(signal, () => this.recent.clear());
  }

  async get(identity: Identity, address: string | undefined): Promise<Caller> {
    const { name, way, roles, groups, isReadOnly, isScoped } = identity;
    const key = JSON.stringify([way, name, [...roles], groups, isReadOnly, isScoped]);
    const caller = await this.recent.get(key, () => toCaller(this.ctx, identity));
    return { ...caller, expiresAt: identity.expiresAt, address };
  }
}

const NONE: Quotas = new Set<string>();

/** Returns the caller for an authenticated identity, with the caller's rights. */
export async function toCaller(ctx: Context, identity: Identity): Promise<Caller> {
  const { name, way, isReadOnly = false, isScoped = false, tokenId, expiresAt, address } = identity;
  const roles = isReadOnly ? withoutWriting(identity.roles) : identity.roles;
  // drop groups that the database cannot store, because no quota, rule or role can name such groups
  const groups = (identity.groups ?? []).filter(isStorable);
  const rights = await readRights(ctx, name, groups);
  const own = roles.has('user') ? rights : { uses: [], manages: [] };
  const given = roles.has('service') ? (identity.quotas ?? []) : [];
  const self = roles.has('user') ? [name] : [];
  const acts = new Set([...self, ...own.uses, ...given]);
  const manages = new Set([...self, ...own.manages, ...given]);
  const seesAll = roles.has('operator') || roles.has('viewer') || roles.has('legacy');
  const doesAll = roles.has('operator') || roles.has('legacy');
  return {
    name,
    way,
    roles,
    groups,
    isReadOnly,
    isScoped,
    reads: seesAll ? 'all' : acts,
    acts: isReadOnly ? NONE : doesAll ? 'all' : acts,
    manages: isReadOnly ? NONE : doesAll ? 'all' : manages,
    tokenId,
    expiresAt,
    address,
    rights: rights.version,
  };
}

function withoutWriting(roles: ReadonlySet<Role>): ReadonlySet<Role> {
  return new Set([...roles].map((role) => (role === 'operator' ? 'viewer' : role)));
}

/**
 * Returns the caller for a gateway without authentication. The anonymous caller has all rights except operator rights.
 */
export function openCaller(address: string | undefined): Caller {
  return {
    name: 'anybody',
    way: 'open',
    roles: new Set(['user']),
    groups: [],
    reads: 'all',
    acts: 'all',
    manages: 'all',
    tokenId: undefined,
    expiresAt: undefined,
    address,
  };
}

const MAX_NAME = 255;

/** Returns a user name unchanged if it is valid. @throws HttpError 401 */
export function checkName(name: string, source: string): string {
  if (isReserved(name)) throw unauthenticated(`the user name in ${source} is reserved: ${quote(name)}`);
  if (name.length <= MAX_NAME && isPlainName(name)) return name;
  throw unauthenticated(
    `the user name in ${source} must have 1 to ${MAX_NAME} visible characters in normal form (NFC), without leading or trailing spaces`,
  );
}

/**
 * Returns Tapegate's name for an issuer's user or group. Names from the first configured issuer are unchanged. Other
 * issuers' names get the issuer's name as a suffix, because names are unique only within an issuer.
 */
export function nameOfIssuer({ oidcIssuers }: AccessConfig, issuer: string, given: string): string {
  return issuer === oidcIssuers[0] ? given : `${given}@${namesOfIssuer(issuer)}`;
}

/**
 * Rejects a name that is reserved for an issuer's users or groups but comes from another source.
 * @throws HttpError 401
 */
export function checkNoIssuers({ auth, oidcIssuers }: AccessConfig, names: readonly string[], source: string): void {
  if (!auth.has('oidc') || oidcIssuers.length < 2) return;
  const ends = new Set(oidcIssuers.slice(1).map(namesOfIssuer));
  const taken = names.find((name) => name.includes('@') && ends.has(name.slice(name.lastIndexOf('@') + 1)));
  if (taken === undefined) return;
  throw unauthenticated(
    `${source} names ${quote(taken)}, but only an issuer in TAPEGATE_OIDC_ISSUER may use this name`,
  );
}

const MAX_ENTRIES = 10_000;

/** Cache with a maximum age for its entries. The number of entries is limited too, because clients choose the keys. */
export class Recent<Value> {
  private readonly ttlMs: number;
  private entries: LRUCache<string, Promise<Value>>;

  constructor(ttlMs: number) {
    this.ttlMs = ttlMs;
    this.entries = this.create();
  }

  private create(): LRUCache<string, Promise<Value>> {
    return new LRUCache({ max: MAX_ENTRIES, ttl: this.ttlMs });
  }

  /**
   * Returns the cached value for a key, or loads the value. Failures are not cached. If the cache is cleared while a
   * value is being loaded, the value is loaded a second time.
   */
  async get(key: string, load: () => Promise<Value>): Promise<Value> {
    for (;;) {
      const { entries } = this;
      let found = entries.get(key);
      if (!found) {
        found = load();
        entries.set(key, found);
      }
      const value = await found.catch((error) => {
        if (entries.peek(key) === found) entries.delete(key);
        throw error;
      });
      if (entries === this.entries) return value;
    }
  }

  clear(): void {
    this.entries = this.create();
  }
}
