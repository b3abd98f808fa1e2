/**
 * Callers. gateway/ authenticates them; the engine and commands that open the database run as `SYSTEM`.
 * domain/policy.ts has their rights.
 */

/**
 * A user has a quota. A viewer reads everything, an operator may do everything. A service acts for its quotas. A legacy
 * caller has no credentials and uses the endpoints left open for it.
 */
export const roles = ['user', 'viewer', 'operator', 'service', 'legacy'] as const;
export type Role = (typeof roles)[number];

/** Authentication method: `open` without authentication, `system` for this program. */
export const ways = ['open', 'token', 'oidc', 'proxy', 'certificate', 'legacy', 'system'] as const;
export type Way = (typeof ways)[number];

export type Quotas = 'all' | ReadonlySet<string>;

export interface Caller {
  /** For people: the name of the user, the token or the way. */
  name: string;
  way: Way;
  roles: ReadonlySet<Role>;
  groups: readonly string[];
  /** Users whose requests it may see. */
  reads: Quotas;
  /** May change nothing, regardless of its roles. */
  isReadOnly?: boolean;
  /** Its token has only the rights of its scopes, which never include `manage`. */
  isScoped?: boolean;
  /** Users for whom it may request files, and change its own requests. */
  acts: Quotas;
  /** Users whose requests it may change even if others made them. */
  manages: Quotas;
  tokenId: number | undefined;
  /** When its login expires, UTC without a zone. */
  expiresAt: string | undefined;
  /** Other rights that may change later: the text changes with them. */
  rights?: string;
  /** Network address, or the host of a command; undefined for the engine. */
  address: string | undefined;
}

export const SYSTEM: Caller = {
  name: 'system',
  way: 'system',
  roles: new Set(['operator']),
  groups: [],
  reads: 'all',
  acts: 'all',
  manages: 'all',
  tokenId: undefined,
  expiresAt: undefined,
  address: undefined,
};

export function hasQuota(quotas: Quotas, user: string): boolean {
  return quotas === 'all' || quotas.has(user);
}

export function hasRole({ roles: own }: Caller, ...wanted: readonly Role[]): boolean {
  return wanted.some((role) => own.has(role));
}

/** Returns a key that is the same for a caller with the same rights. The token is part of it. */
export function describeCaller({ way, name, roles, groups, isScoped = false, tokenId, rights }: Caller): string {
  return JSON.stringify([way, name, [...roles], groups, isScoped, tokenId, rights]);
}

/**
 * Returns the owner name of a caller's objects: a user's name, with any authentication. Services, operators and users
 * whose names contain a colon get a prefix.
 */
export function ownerOf(caller: Caller): string {
  const { name, way } = caller;
  if (way === 'open' || way === 'system' || way === 'legacy') return `${way}:`;
  if (hasRole(caller, 'user')) return name.includes(':') ? `user:${name}` : name;
  return `${hasRole(caller, 'service') ? 'service' : 'operator'}:${name}`;
}
