/**
 * Access policy of REST, GraphQL and commands. Each operation calls `allow` with its own name, directly or through
 * `audited`. An object that the caller may not see is reported as missing. A visible object that the caller may not
 * change is reported as forbidden.
 */
import { type Caller, hasQuota, hasRole, ownerOf, type Quotas, type Role } from '../core/caller.js';
import { ForbiddenError, noQuota, quote } from '../core/errors.js';
import { type Sql, sql } from '../db/sql.js';
import type { Prisma } from '../generated/prisma/client.js';
import type { Context } from './context.js';

/**
 * Right that an operation requires.
 * - `read`: the caller has any role. The operation returns only visible objects.
 * - `ask`: the caller may use the quota.
 * - `change`: the caller created the request, or manages its quota.
 * - `manage`: the caller owns or manages the quota.
 * - `look`: the caller is a viewer or an operator, because the operation shows objects of all quotas.
 * - `operate`: the caller is an operator.
 */
export type Right = 'read' | 'ask' | 'change' | 'manage' | 'look' | 'operate';

export const policy = {
  getFile: 'read',
  createDownload: 'read',
  listFiles: 'read',
  listVolumes: 'read',
  getVolume: 'read',
  listDrives: 'read',
  listLibraries: 'read',
  listDisksByPage: 'read',
  getRequest: 'read',
  listRequests: 'read',
  getQuota: 'read',
  listQuotasByPage: 'read',
  listSuspensions: 'read',
  showCaller: 'read',
  isEmailSent: 'read',
  listWaitingMail: 'read',
  showPlan: 'read',
  readFence: 'read',
  watchRequest: 'read',
  watchRequestList: 'read',
  watchStages: 'read',
  watchEnd: 'read',
  watchRequests: 'read',
  estimateRequest: 'ask',
  createRequest: 'ask',
  updateRequest: 'change',
  cancelRequest: 'change',
  releaseFiles: 'change',
  retryRequest: 'change',
  setQuotaMember: 'manage',
  removeQuotaMember: 'manage',
  listWebhooks: 'manage',
  listWebhookMessages: 'manage',
  createWebhook: 'manage',
  updateWebhook: 'manage',
  rotateWebhookSecret: 'manage',
  testWebhook: 'manage',
  removeWebhook: 'manage',
  readDriveHosts: 'look',
  listVerifications: 'look',
  listPathRules: 'look',
  listLegacyUses: 'look',
  addPathRule: 'operate',
  removePathRule: 'operate',
  setRequestPriority: 'operate',
  suspend: 'operate',
  resume: 'operate',
  verifyFiles: 'operate',
  createToken: 'operate',
  listTokens: 'operate',
  revokeToken: 'operate',
  listAudit: 'operate',
  purgeUser: 'operate',
  setQuota: 'operate',
  removeQuota: 'operate',
  setMedium: 'operate',
  addLibrary: 'operate',
  updateLibrary: 'operate',
  removeLibrary: 'operate',
  importRows: 'operate',
  withdrawFiles: 'operate',
  reinstateFiles: 'operate',
  renameFiles: 'operate',
  purgeFiles: 'operate',
  moveVolume: 'operate',
  retireVolume: 'operate',
  reinstateVolume: 'operate',
  listFindings: 'operate',
  repairFindings: 'operate',
  setDisk: 'operate',
  resizeRestoreDisk: 'operate',
  removeRestoreDisk: 'operate',
  readVolumeFiguresOf: 'look',
  readHostsOf: 'look',
  readSettings: 'look',
  readStagingFigures: 'look',
  readUsage: 'look',
  readLibraryProblems: 'look',
  readMetrics: 'look',
  watchSite: 'look',
  readHistory: 'look',
  listProcesses: 'look',
  simulatePlan: 'look',
  listRecalls: 'look',
  listFailedFiles: 'look',
} as const satisfies Record<string, Right>;

export type Operation = keyof typeof policy;

/**
 * Read-only operations that require one of the rights `ask`, `change`, `manage` or `operate`. All other operations that
 * require one of these rights make changes.
 */
const reading = [
  'estimateRequest',
  'listTokens',
  'listAudit',
  'listFindings',
  'listWebhooks',
  'listWebhookMessages',
] as const satisfies readonly Operation[];

type ReadOperation = (typeof reading)[number];
type Writing = {
  [Each in Operation]: (typeof policy)[Each] extends 'ask' | 'change' | 'manage' | 'operate' ? Each : never;
}[Operation];

export type Changing = Exclude<Writing, ReadOperation>;

export function isChanging(operation: Operation): operation is Changing {
  const isReading = (reading as readonly Operation[]).includes(operation);
  return ['ask', 'change', 'manage', 'operate'].includes(policy[operation]) && !isReading;
}

/** For each right, the roles that have it, and the text that follows "may not" in the error message. */
const rights: Record<Right, { roles: readonly Role[]; what: string }> = {
  read: { roles: ['user', 'viewer', 'operator', 'service', 'legacy'], what: 'read this information' },
  ask: {
    roles: ['user', 'operator', 'service', 'legacy'],
    what: 'request files: this caller has no quota',
  },
  change: { roles: ['user', 'operator', 'service', 'legacy'], what: 'change requests: this caller may only read' },
  // a service may use quotas, but may not give other users access to them
  manage: {
    roles: ['user', 'operator'],
    what: "manage members and webhooks: a user's or an operator's token is required",
  },
  look: { roles: ['viewer', 'operator'], what: "read this information: a viewer's or an operator's token is required" },
  operate: { roles: ['operator'], what: "use this operation: an operator's token is required" },
};

const READ_ONLY = 'use this operation: the token allows only reading, and does not have the rights of an operator';

export function may(caller: Caller, operation: Operation): boolean {
  const right = policy[operation];
  // anonymous callers must not add members or webhooks, because these would remain when an operator later turns on
  // authentication
  if (right === 'manage' && (caller.way === 'open' || caller.isScoped)) return false;
  return hasRole(caller, ...rights[right].roles);
}

function refusal(caller: Caller, operation: Operation): ForbiddenError {
  if (caller.isReadOnly) return new ForbiddenError(caller.name, READ_ONLY);
  return new ForbiddenError(caller.name, rights[policy[operation]].what);
}

/**
 * A caller, and a recorder for the caller's refused read operations. Refused changes are recorded by the function
 * `audited`.
 */
type Asking = Pick<Context, 'caller' | 'refusals'>;

/**
 * Checks that the caller may run an operation.
 * @param user owner of the quota to charge
 * @throws ForbiddenError, with the same text whether or not the user exists
 */
export function allow({ caller, refusals }: Asking, operation: Operation, user?: string): void {
  if (!may(caller, operation)) {
    const error = refusal(caller, operation);
    if (!isChanging(operation)) refusals.record(caller, { operation, kind: 'NONE', object: '' }, error.code);
    throw error;
  }
  if (user === undefined || hasQuota(caller.acts, user)) return;
  if (caller.isReadOnly) throw refusal(caller, operation);
  throw new ForbiddenError(caller.name, `use the quota of user ${quote(user)}`);
}

interface OwnedRequest {
  id: number;
  user: string;
  madeBy: string | null;
}

/** Checks that the caller may change a visible request. @throws ForbiddenError */
export function allowChange(ctx: Asking, operation: Operation, request: OwnedRequest): void {
  const { caller } = ctx;
  allow(ctx, operation);
  const isOwn = hasQuota(caller.acts, request.user) && request.madeBy === ownerOf(caller);
  if (isOwn || hasQuota(caller.manages, request.user)) return;
  if (caller.isReadOnly) throw refusal(caller, operation);
  throw new ForbiddenError(
    caller.name,
    `change request ${request.id} of user ${quote(request.user)}: another caller created it`,
  );
}

/**
 * Checks that the caller manages a user's quota.
 * @throws NotFoundError if the user's quota is hidden from the caller; ForbiddenError if the caller does not manage it
 */
export function allowManage(ctx: Asking, operation: Operation, user: string): void {
  const { caller } = ctx;
  allow(ctx, operation);
  if (!hasQuota(caller.reads, user)) throw noQuota(user);
  if (hasQuota(caller.manages, user)) return;
  if (caller.isReadOnly) throw refusal(caller, operation);
  throw new ForbiddenError(caller.name, `manage the members and webhooks of user ${quote(user)}`);
}

/**
 * Returns a key that is equal for callers with the same rights. Callers with equal keys can share the results of reads.
 * Returns undefined if the caller has no role.
 */
export function rightsKey(caller: Caller): string | undefined {
  const { way, name, roles, groups, reads, acts, manages, isReadOnly = false, isScoped = false, rights } = caller;
  if (roles.size === 0) return undefined;
  const listed = (quotas: Quotas) => (quotas === 'all' ? quotas : [...quotas].sort());
  const isRuled = !hasRole(caller, 'operator', 'viewer');
  const who = isRuled ? [way, name, ownerOf(caller), [...groups].sort(), rights] : [];
  return JSON.stringify([[...roles].sort(), listed(reads), listed(acts), listed(manages), isReadOnly, isScoped, who]);
}

/** Returns the SQL condition that is true if the caller may see the quota `q` and its requests. */
export function isVisibleQuota({ caller }: Pick<Context, 'caller'>): Sql {
  return caller.reads === 'all' ? sql`true` : sql`q."user" = ANY(${[...caller.reads]}::text[])`;
}

export function visibleQuotas({ caller }: Pick<Context, 'caller'>): Prisma.QuotaWhereInput {
  return caller.reads === 'all' ? {} : { user: { in: [...caller.reads] } };
}

/**
 * Returns the SQL condition that is true if the caller manages the quota `q`. Operators also manage objects that do not
 * belong to a quota.
 */
export function isManagedQuota({ caller }: Pick<Context, 'caller'>): Sql {
  return caller.manages === 'all' ? sql`true` : sql`q."user" = ANY(${[...caller.manages]}::text[])`;
}
