/** From who somebody is to what the policy needs to know of a caller. */
import type { Caller, Quotas, Role, Way } from '../caller.js';
import type { Context } from '../context.js';
import { readRights } from '../operations/access/members.js';
import { Recent } from './recent.js';

/** Whoever was told by a way. */
export interface Identity {
  name: string;
  way: Way;
  roles: ReadonlySet<Role>;
  groups?: readonly string[];
  /** Users for whom a service acts. */
  quotas?: readonly string[];
  /** It changes nothing, whatever its roles. */
  isReadOnly?: boolean;
  tokenId?: number | undefined;
  expiresAt?: string | undefined;
  address?: string | undefined;
}

/** For so long nobody asks the database again what a caller may see. */
const KNOWN_MS = 2000;

/** Callers by who they are, as they were found a moment ago. */
export class KnownCallers {
  private readonly ctx: Context;
  private readonly recent = new Recent<Caller>(KNOWN_MS);

  constructor(ctx: Context) {
    this.ctx = ctx;
    for (const bell of ['access', 'rights']) ctx.events.onRing(bell, () => this.recent.clear());
  }

  async get(identity: Identity, address: string | undefined): Promise<Caller> {
    const { name, way, roles, groups, isReadOnly } = identity;
    const key = JSON.stringify([way, name, [...roles], groups, isReadOnly]);
    const caller = await this.recent.get(key, () => toCaller(this.ctx, identity));
    return { ...caller, expiresAt: identity.expiresAt, address };
  }
}

const NONE: Quotas = new Set<string>();

/** What somebody may see and do, by its roles and memberships. */
export async function toCaller(ctx: Context, identity: Identity): Promise<Caller> {
  const { name, way, groups = [], isReadOnly = false, tokenId, expiresAt, address } = identity;
  const roles = isReadOnly ? withoutWriting(identity.roles) : identity.roles;
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
    reads: seesAll ? 'all' : acts,
    acts: isReadOnly ? NONE : doesAll ? 'all' : acts,
    manages: isReadOnly ? NONE : doesAll ? 'all' : manages,
    tokenId,
    expiresAt,
    address,
    rights: rights.version,
  };
}

/** An operator that changes nothing is a viewer. */
function withoutWriting(roles: ReadonlySet<Role>): ReadonlySet<Role> {
  return new Set([...roles].map((role) => (role === 'operator' ? 'viewer' : role)));
}

/** Whoever asks, where nobody is to show who it is: everything but what operators do. */
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
