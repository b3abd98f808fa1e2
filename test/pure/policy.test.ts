/** The access policy: which roles may call which operations on which quotas. */
import { describe, expect, test } from 'vitest';
import type { Caller, Role } from '../../src/core/caller.js';
import type { Refusals } from '../../src/domain/audit/audit.js';
import { allow, allowChange, allowManage, may, type Operation, policy, type Right } from '../../src/domain/policy.js';

/** Operations by the required right, repeated here to detect changes of rights. */
const operations: Record<Right, string> = {
  read: `createDownload getFile getQuota getRequest getVolume listDisksByPage listDrives listFiles listLibraries listQuotasByPage listRequests listSuspensions
    listVolumes listWaitingMail isEmailSent readFence showCaller showPlan watchEnd watchRequest watchRequestList watchRequests watchStages`,
  ask: 'createRequest estimateRequest',
  change: 'cancelRequest releaseFiles retryRequest updateRequest',
  manage: `createWebhook listWebhookMessages listWebhooks removeQuotaMember removeWebhook rotateWebhookSecret setQuotaMember updateWebhook
    testWebhook`,
  look: `listLegacyUses listPathRules listProcesses listVerifications readDriveHosts readHistory readHostsOf readMetrics
    listFailedFiles listRecalls readLibraryProblems readSettings readStagingFigures readUsage readVolumeFiguresOf simulatePlan watchSite`,
  operate: `addLibrary createToken removeRestoreDisk purgeFiles purgeUser importRows listAudit listFindings listTokens moveVolume
    reinstateFiles reinstateVolume removeLibrary removePathRule removeQuota renameFiles repairFindings resizeRestoreDisk resume retireVolume
    revokeToken setDisk updateLibrary setMedium addPathRule setRequestPriority setQuota suspend verifyFiles withdrawFiles`,
};

test.each(Object.entries(operations))('the operations with the right to %s are these', (right, names) => {
  const found = Object.entries(policy).flatMap(([name, needed]) => (needed === right ? [name] : []));
  expect(found.sort()).toEqual(names.split(/\s+/).sort());
});

function buildCaller(roles: readonly Role[], given: Partial<Caller> = {}): Caller {
  const own = new Set(['ann']);
  return {
    ...{ name: 'ann', way: 'token', roles: new Set(roles), groups: [], reads: own, acts: own, manages: own },
    ...{ tokenId: 1, expiresAt: undefined, address: undefined, ...given },
  };
}

const examples: Record<Right, Operation> = {
  ...{ read: 'getQuota', ask: 'createRequest', change: 'cancelRequest' },
  ...{ manage: 'setQuotaMember', look: 'watchSite', operate: 'suspend' },
};

test.each<[Role[], Partial<Caller>, string]>([
  [[], {}, ''],
  [['user'], {}, 'read ask change manage'],
  [['service'], {}, 'read ask change'],
  [['legacy'], { way: 'legacy' }, 'read ask change'],
  [['viewer'], {}, 'read look'],
  [['operator'], {}, 'read ask change manage look operate'],
  [['user', 'viewer'], {}, 'read ask change manage look'],
  // an anonymous caller must not grant rights that remain after authentication becomes required
  [['user'], { way: 'open' }, 'read ask change'],
  [['operator'], { way: 'open' }, 'read ask change look operate'],
])('the roles %j with %j have the rights "%s"', (roles, given, expected) => {
  const caller = buildCaller(roles, given);
  const rights = (Object.keys(examples) as Right[]).filter((right) => may(caller, examples[right]));
  expect(rights.join(' ')).toBe(expected);
});

const noted: string[] = [];
const refusals: Pick<Refusals, 'record'> = { record: (_asker, { operation }) => void noted.push(operation) };
const asking = (caller: Caller) => ({ caller, refusals: refusals as Refusals });

test('the refusal of a read is recorded; that of a change is left to the audit of changes', () => {
  const caller = buildCaller(['user']);
  for (const operation of ['listAudit', 'watchSite', 'suspend'] as const) {
    expect(refusalOf(() => allow(asking(caller), operation))).toMatch(/^FORBIDDEN/);
  }
  expect(noted).toEqual(['listAudit', 'watchSite']);
});

/** Returns `allowed`, or the code and message of the error. */
function refusalOf(call: () => void): string {
  try {
    call();
    return 'allowed';
  } catch (error) {
    return `${(error as { code: string }).code}: ${(error as Error).message}`;
  }
}

const none = new Set<string>();
const lab = new Set(['lab']);
const seeing = (user: string, given: Partial<Caller> = {}) =>
  buildCaller(['user'], { reads: new Set([user]), acts: none, manages: none, ...given });

describe('a request with a quota', () => {
  const reader = buildCaller(['user'], { isReadOnly: true, acts: none });
  test.each<[what: string, Caller, user: string, RegExp]>([
    ['is allowed to a caller that may act for it', buildCaller(['user']), 'ann', /^allowed$/],
    [
      'is refused to others, even if the quota does not exist',
      buildCaller(['user']),
      'lab',
      /^FORBIDDEN: .*of user "lab"/,
    ],
    [
      'is refused to a viewer',
      buildCaller(['viewer'], { acts: none }),
      'ann',
      /^FORBIDDEN: .*request files: this caller has no quota/,
    ],
    ['is refused to a read-only caller', reader, 'ann', /^FORBIDDEN: .*the token allows only reading/],
  ])('%s', (_what, caller, user, expected) => {
    expect(refusalOf(() => allow(asking(caller), 'createRequest', user))).toMatch(expected);
  });
});

describe('a change of the members of a quota', () => {
  const manager = buildCaller(['user'], { reads: lab, manages: lab });
  test.each<[what: string, Caller, RegExp]>([
    ['is allowed to its manager', manager, /^allowed$/],
    [
      'is refused to a caller that sees it',
      seeing('lab'),
      /^FORBIDDEN: .*manage the members and webhooks of user "lab"/,
    ],
    [
      'finds no quota for a caller that does not see it',
      seeing('ann'),
      /^NOT_FOUND: there is no quota "lab", or you are not allowed to see it$/,
    ],
    [
      'is refused to a service first',
      buildCaller(['service']),
      /^FORBIDDEN: .*a user's or an operator's token is required/,
    ],
  ])('%s', (_what, caller, expected) => {
    expect(refusalOf(() => allowManage(asking(caller), 'setQuotaMember', 'lab'))).toMatch(expected);
  });
});

describe('a change of a request', () => {
  const request = { id: 7, user: 'lab', madeBy: 'ann' };
  const acting = (name: string, given: Partial<Caller> = {}) => seeing('lab', { name, acts: lab, ...given });
  test.each<[what: string, Caller, RegExp]>([
    ['is allowed to its creator', acting('ann'), /^allowed$/],
    ['is refused to another member', acting('ben'), /^FORBIDDEN: .*request 7 of user "lab": another caller created it/],
    ['is allowed to a manager', seeing('lab', { name: 'ben', manages: lab }), /^allowed$/],
    ['is refused to a creator that is no member any more', seeing('lab'), /^FORBIDDEN/],
    [
      'is refused to a service with the name of the creator',
      acting('ann', { roles: new Set(['service']) }),
      /^FORBIDDEN/,
    ],
    [
      'is refused to a read-only caller',
      seeing('lab', { isReadOnly: true }),
      /^FORBIDDEN: .*the token allows only reading/,
    ],
    ['is refused to a viewer', buildCaller(['viewer']), /^FORBIDDEN: .*change requests: this caller may only read/],
  ])('%s', (_what, caller, expected) => {
    expect(refusalOf(() => allowChange(asking(caller), 'cancelRequest', request))).toMatch(expected);
  });
});
