/** Callers of operations. Engines, and commands that open the database directly, use the caller `SYSTEM`. */

/**
 * Roles of callers. A user has a quota. A viewer may read everything, and an operator may do everything. A service
 * requests files for users whose quotas it may use. A legacy caller uses endpoints that do not require credentials.
 */
export const roles = ['user', 'viewer', 'operator', 'service', 'legacy'] as const;
export type Role = (typeof roles)[number];

/**
 * Authentication methods. `open` means that the site does not require authentication. `system` is the method of
 * Tapegate's own operations.
 */
export const ways = ['open', 'token', 'oidc', 'proxy', 'certificate', 'legacy', 'system'] as const;
export type Way = (typeof ways)[number];

export type Quotas = 'all' | ReadonlySet<string>;

export interface Caller {
  /** Display name: the name of the user or token, or the authentication method. */
  name: string;
  way: Way;
  roles: ReadonlySet<Role>;
  groups: readonly string[];
  /** Users whose requests the caller may see. */
  reads: Quotas;
  /** Whether the caller must not change anything, even if its roles permit changes. */
  isReadOnly?: boolean;
  /** Whether the caller may do only what the scopes of its token permit. */
  isScoped?: boolean;
  /**
   * Users for whom the caller may create requests. The caller may also change the requests that it created for these
   * users.
   */
  acts: Quotas;
  /** Users for whom the caller may change all requests, including other callers' requests. */
  manages: Quotas;
  tokenId: number | undefined;
  /** The time at which the caller's login expires, as text in UTC without a zone. */
  expiresAt: string | undefined;
  /** Text that changes whenever the caller's rights or the path rules change. */
  rights?: string;
  /** The caller's network address, or the host on which a command runs; undefined for the engine. */
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

/** Returns a key that is the same only for callers with the same name, authentication method, token and rights. */
export function describeCaller({ way, name, roles, groups, isScoped = false, tokenId, rights }: Caller): string {
  return JSON.stringify([way, name, [...roles], groups, isScoped, tokenId, rights]);
}

/**
 * Returns the name under which a caller owns objects, such as requests and webhooks. The name does not depend on a
 * user's authentication method.
 */
export function ownerOf(caller: Caller): string {
  const { name, way } = caller;
  if (way === 'open' || way === 'system' || way === 'legacy') return `${way}:`;
  if (hasRole(caller, 'user')) return userOwner(name);
  return `${hasRole(caller, 'service') ? 'service' : 'operator'}:${name}`;
}

/** Returns the caller's name in the result of `ownerOf`, or null if the caller had no name. */
export function nameOfOwner(owner: string | null): string | null {
  return owner?.replace(/^user:/, '').replace(/^(open|system|legacy):$/, '') || null;
}

/** Returns the name under which a user owns objects. */
export const userOwner = (name: string): string => (name.includes(':') ? `user:${name}` : name);
