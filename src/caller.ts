/**
 * Who asks. The gateway finds out for each request (access/), the engine and commands that open the database ask as `SYSTEM`;
 * what a caller may do is in operations/policy.ts.
 */

/**
 * What a caller is to the service: a user has a quota; a viewer reads everything; an operator may do everything; a service acts
 * for the quotas that it was given; a legacy caller has shown nothing and has the endpoints that are left open for such.
 */
export const roles = ['user', 'viewer', 'operator', 'service', 'legacy'] as const;
export type Role = (typeof roles)[number];

/** How a caller was known: `open` is whoever asks, `system` is this program itself. */
export const ways = ['open', 'token', 'oidc', 'proxy', 'certificate', 'legacy', 'system'] as const;
export type Way = (typeof ways)[number];

/** Quotas by their users, or every one. */
export type Quotas = 'all' | ReadonlySet<string>;

export interface Caller {
  /** For people: the user's name, or that of the token, or of the way. */
  name: string;
  way: Way;
  roles: ReadonlySet<Role>;
  /** Of whatever told who it is. */
  groups: readonly string[];
  /** Whose requests it may see. */
  reads: Quotas;
  /** It changes nothing, whatever its roles. */
  isReadOnly?: boolean;
  /** For whom it may ask for files, and change what it has asked for. */
  acts: Quotas;
  /** For whom it may change what others have asked for. */
  manages: Quotas;
  /** Of an API token. */
  tokenId: number | undefined;
  /** When it is known no longer, UTC without a zone. */
  expiresAt: string | undefined;
  /** What else decides what it may, where that may change while it asks: another text when it has. */
  rights?: string;
  /** Where it asks from: an address of the network, or the host of a command; undefined for the engine. */
  address: string | undefined;
}

/** The engine, and commands on a host that has the database. */
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

/** Does it have one of these roles? */
export function hasRole({ roles: own }: Caller, ...wanted: readonly Role[]): boolean {
  return wanted.some((role) => own.has(role));
}

/** The same for all that one caller asks with the same rights, and for nobody else: the token by which it is known is part of it. */
export function describeCaller({ way, name, roles, groups, tokenId, rights }: Caller): string {
  return JSON.stringify([way, name, [...roles], groups, tokenId, rights]);
}

/**
 * By which a caller is told from all others in what it has made: a user by its name, whatever it was known by; a service or an
 * operator of the same name is somebody else. No way gives a user without a colon the name of one of those.
 */
export function ownerOf(caller: Caller): string {
  const { name, way } = caller;
  if (way === 'open' || way === 'system' || way === 'legacy') return `${way}:`;
  if (hasRole(caller, 'user')) return name.includes(':') ? `user:${name}` : name;
  return `${hasRole(caller, 'service') ? 'service' : 'operator'}:${name}`;
}
