/** The policy by itself: which roles may call which operations, and what they may call them with. */
import { describe, expect, test } from 'vitest';
import type { Caller, Role } from '../../src/caller.js';
import {
  allow,
  allowChange,
  allowManage,
  may,
  type Operation,
  policy,
  type Right,
} from '../../src/operations/policy.js';

/** Operations by the right that they need, written down a second time: a change of a right is a change here. */
const operations: Record<Right, string> = {
  read: `getFile getQuota getRequest listDisksByPage listDrives listFiles listLibraries listQuotasByPage listRequests listSuspensions
    listVolumes listWaitingMail showCaller showPlan watchEnd watchRequest watchRequests watchStages`,
  ask: 'createRequest estimateRequest',
  change: 'cancelRequest releaseFiles retryRequest updateRequest',
  manage: `createWebhook listWebhookMessages listWebhooks removeMember removeWebhook rotateWebhookSecret setMember setWebhook
    testWebhook`,
  look: `listLegacyUses listPathRules listProcesses listVerifications readDriveHosts readHistory readHostsOf readKept readMetrics
    readSettings readStagingFigures readUsage readVolumeFiguresOf watchSite`,
  operate: `addLibrary createToken forgetDisk forgetFiles forgetUser importRows listAudit listFindings listTokens moveVolume
    reinstateFiles reinstateVolume removeLibrary removePathRule removeQuota renameFiles repairFindings resizeDisk resume retireVolume
    revokeToken setDisk setLibrary setMedium setPathRule setPriority setQuota suspend verifyAgain withdrawFiles`,
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

const rightsOf = (caller: Caller) => {
  const examples: Record<Right, Operation> = {
    ...{ read: 'getQuota', ask: 'createRequest', change: 'cancelRequest' },
    ...{ manage: 'setMember', look: 'watchSite', operate: 'suspend' },
  };
  return (Object.keys(examples) as Right[]).filter((right) => may(caller, examples[right])).join(' ');
};

test.each<[Role[], Partial<Caller>, string]>([
  [[], {}, ''],
  [['user'], {}, 'read ask change manage'],
  [['service'], {}, 'read ask change'],
  [['legacy'], { way: 'legacy' }, 'read ask change'],
  [['viewer'], {}, 'read look'],
  [['operator'], {}, 'read ask change manage look operate'],
  [['user', 'viewer'], {}, 'read ask change manage look'],
  // what nobody in particular gives to others would stay when callers are to be known
  [['user'], { way: 'open' }, 'read ask change'],
  [['operator'], { way: 'open' }, 'read ask change look operate'],
])('the roles %j of %j have the rights "%s"', (roles, given, expected) => {
  expect(rightsOf(buildCaller(roles, given))).toBe(expected);
});

/** What a call is refused with, and in which words. */
function refusalOf(call: () => void): string {
  try {
    call();
    return 'allowed';
  } catch (error) {
    return `${(error as { code: string }).code}: ${(error as Error).message}`;
  }
}

const none = new Set<string>();
const seeing = (user: string, given: Partial<Caller> = {}) =>
  buildCaller(['user'], { reads: new Set([user]), acts: none, manages: none, ...given });

describe('what a caller may do with a quota', () => {
  test.each<[what: string, Caller, user: string, RegExp]>([
    ['a caller that acts for it asks with it', buildCaller(['user']), 'ann', /^allowed$/],
    [
      'any other is refused, whether it is there or not',
      buildCaller(['user']),
      'lab',
      /^FORBIDDEN: .*quota of user "lab"/,
    ],
    ['a viewer has none to ask with', buildCaller(['viewer'], { acts: none }), 'ann', /^FORBIDDEN: .*no quota to ask/],
    [
      'who reads only is told so',
      buildCaller(['user'], { isReadOnly: true, acts: none }),
      'ann',
      /^FORBIDDEN: .*reads only/,
    ],
  ])('%s', (_what, caller, user, expected) => {
    expect(refusalOf(() => allow({ caller }, 'createRequest', user))).toMatch(expected);
  });

  test.each<[what: string, Caller, RegExp]>([
    [
      'a caller that manages it says who uses it',
      buildCaller(['user'], { reads: new Set(['lab']), manages: new Set(['lab']) }),
      /^allowed$/,
    ],
    ['one that sees it alone is refused', seeing('lab'), /^FORBIDDEN: .*say who uses the quota of user "lab"/],
    ['one that does not see it finds none', seeing('ann'), /^NOT_FOUND: there is no user "lab"$/],
    [
      'a service is refused before that',
      buildCaller(['service']),
      /^FORBIDDEN: .*takes a user's or an operator's token/,
    ],
  ])('%s', (_what, caller, expected) => {
    expect(refusalOf(() => allowManage({ caller }, 'setMember', 'lab'))).toMatch(expected);
  });

  const request = { id: 7, user: 'lab', madeBy: 'ann' };
  const acting = (name: string, given: Partial<Caller> = {}) =>
    seeing('lab', { name, acts: new Set(['lab']), ...given });
  test.each<[what: string, Caller, RegExp]>([
    ['who has made a request changes it', acting('ann'), /^allowed$/],
    [
      'another member does not',
      acting('ben'),
      /^FORBIDDEN: .*change request 7 of user "lab", which somebody else has made/,
    ],
    ['a manager does', seeing('lab', { name: 'ben', manages: new Set(['lab']) }), /^allowed$/],
    ['who is no member any more does not, though it has made it', seeing('lab'), /^FORBIDDEN/],
    ['a service of the same name has not made it', acting('ann', { roles: new Set(['service']) }), /^FORBIDDEN/],
    ['who reads only is told so', seeing('lab', { isReadOnly: true }), /^FORBIDDEN: .*reads only/],
    ['a viewer may read only', buildCaller(['viewer']), /^FORBIDDEN: .*change requests: it may read only/],
  ])('%s', (_what, caller, expected) => {
    expect(refusalOf(() => allowChange({ caller }, 'cancelRequest', request))).toMatch(expected);
  });
});
