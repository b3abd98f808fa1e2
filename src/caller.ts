/**
 * Callers. The gateway finds out who asks (access/); the engine and commands that open the database ask as `SYSTEM`.
 * Rights are in operations/policy.ts.
 */

/**
 * A user has a quota, a viewer reads everything, an operator may do everything, a service acts for the quotas that it
 * was given, and a legacy caller without credentials uses the endpoints left open for it.
 */
export const roles = ['user', 'viewer', 'operator', 'service', 'legacy'] as const;
export type Role = (typeof roles)[number];

/** How a caller was authenticated: `open` without authentication, `system` as this program. */
export const ways = ['open', 'token', 'oidc', 'proxy', 'certificate', 'legacy', 'system'] as const;
export type Way = (typeof ways)[number];

export type Quotas = 'all' | ReadonlySet<string>;

export interface Caller {
  /** For people: the name of the user, the token or the way. */
  name: string;
  way: Way;
  roles: ReadonlySet<Role>;
  groups: readonly string[];
  /** Whose requests it may see. */
  reads: Quotas;
  /** Changes nothing, whatever its roles. */
  isReadOnly?: boolean;
  /** For whom it may request files, and change its own requests. */
  acts: Quotas;
  /** For whom it may change requests of others. */
  manages: Quotas;
  tokenId: number | undefined;
  /** When it is logged out, UTC without a zone. */
  expiresAt: string | undefined;
  /** Other rights that may change meanwhile: the text changes with them. */
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

/** Returns the same text for everything that one caller asks with the same rights. The token is part of it. */
export function describeCaller({ way, name, roles, groups, tokenId, rights }: Caller): string {
  return JSON.stringify([way, name, [...roles], groups, tokenId, rights]);
}

/**
 * Returns the owner name of what a caller makes: a user's name, however authenticated; with a prefix for services and
 * operators, and for users whose names contain a colon.
 */
export function ownerOf(caller: Caller): string {
  const { name, way } = caller;
  if (way === 'open' || way === 'system' || way === 'legacy') return `${way}:`;
  if (hasRole(caller, 'user')) return name.includes(':') ? `user:${name}` : name;
  return `${hasRole(caller, 'service') ? 'service' : 'operator'}:${name}`;
}
