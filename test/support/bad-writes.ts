/** Bad request bodies, and bad values for each field of GraphQL mutations and of requests in the REST contract. */
import { MAX_BODY_BYTES } from '../../src/gateway/http/http-body.js';
import {
  ask,
  type BadInput,
  CREATE,
  graphql,
  mutate,
  mutateEach,
  NAMES,
  rest,
  shorten,
  writers,
} from './bad-input-forms.js';

const deep = (inner = '') => `${'['.repeat(100_000)}${inner}${']'.repeat(100_000)}`;
const NOT_UTF8 = Buffer.from([0x5b, 0x7b, 0x22, 0xff, 0xfe, 0x22, 0x3a, 0x31, 0x7d, 0x5d]);
const ENCODED = /^the body must be sent without Content-Encoding, not as "gzip"$/;
const TOO_DEEP = /nested more than 100 levels deep$/;
const NO_JSON = /^the body is not JSON: /;
const gzip = { headers: { 'Content-Encoding': 'gzip' }, status: 415 };

const bodies: BadInput[] = [
  rest('malformed JSON', NO_JSON, { body: '[{quota: alice}]' }),
  rest('two JSON texts', NO_JSON, { body: '[{}] [{}]' }),
  rest('100,000 nested arrays', TOO_DEEP, { body: deep() }),
  rest('100,000 nested arrays around a long integer', TOO_DEEP, { body: deep('12345678901234567890') }),
  rest('100,000 nested arrays in a field', TOO_DEEP, { body: `{"quota":${deep()}}` }),
  rest('a number of a million digits', /^quota must name a user/, { body: `{"x":${'9'.repeat(1e6)}}` }),
  graphql('an empty body', NO_JSON, '', 400),
  graphql('truncated JSON', NO_JSON, '{"query":"{ quota', 400),
  graphql('a body that is not UTF-8', NO_JSON, NOT_UTF8, 400),
  graphql('100,000 nested arrays', /./, deep(), 400),
  graphql('100,000 nested objects', /levels deep|JSON/, `${'{"a":'.repeat(100_000)}12345678901234567890`, 400),
  graphql('a query that is no string', /query/, { query: 5 }, 400),
  graphql('variables that are no object', /variables/, { query: CREATE, variables: 'x' }, 400),
  graphql('a body of over 32 MB', /at most 33554432 bytes$/, Buffer.alloc(MAX_BODY_BYTES + 1, ' '), 413),
  { ...graphql('a gzip body', ENCODED, '{}'), ...gzip },
];

const named = (field: string) => `(${field}|${NAMES[field] ?? field})`;
const NOTIFY = ['notify_on_first_file', 'notify_on_last_file'];
const TWO_HEADERS = 'a@example.org\r\nBcc: b@example.org';

/** One bad value for each field of a request. `pure/bad-values.test.ts` and the contract tests cover all bad values. */
const requests: BadInput[] = [
  ...['quota', 'patterns', 'label', 'retention'].flatMap((field) => writers(`${field} 5`, field, 5, named(field))),
  ...NOTIFY.flatMap((field) => writers(`${field} of a list`, field, [['/a']], named(field))),
  ...writers('files that are an object', 'files', {}, 'files'),
  ...writers('files of numbers', 'files', [5], 'files'),
  ...writers('a quota with NUL', 'quota', 'a\0b', '^quota must not contain the character NUL'),
  ...writers('a pattern with a lone surrogate', 'patterns', 'a\ud800b', '^patterns? must be valid Unicode'),
  ...writers('a label of two lines', 'label', 'a\nb', '^label must not contain control characters'),
  ...writers('a retention that is no date', 'retention', '2027-02-29', 'a date \\(?YYYY-MM-DD\\)? or .*, not "'),
  ...NOTIFY.flatMap((field) =>
    writers(`${field} with two headers`, field, TWO_HEADERS, `^${named(field)} must be an email address, not `),
  ),
  ...writers('a parent directory', 'files', ['/fine', '/a/../b'], '^files has a path that contains the part ".."'),
  ...writers('a retention in the past', 'retention', '2001-01-01', '^retention must be in the future').slice(0, 2),
  mutate('createRequest', 'with both pattern and files', /^pattern and files cannot be combined/, {
    ...{ quota: 'alice', pattern: 'a', files: ['/a'] },
  }),
  mutate('createRequest', 'without a quota', /Field "quota" of required type "String!"/, { pattern: '/a/' }),
];

const DRIVES = /^driveCount must be a whole number from 1 to 256, not /;
const DIRECTORY = { name: 'directory', value: '/tapes' };

/** Returns a row that adds a library. The library is valid except for the fields in `given`. */
const added = (what: string, says: RegExp, given: object) =>
  mutate('addLibrary', what, says, { name: 'east', type: 'DIRECTORY', settings: [DIRECTORY], ...given });

/** Returns a row that changes the library `glacier`, which the test has added. */
const changed = (what: string, says: RegExp, given: object) =>
  mutate('updateLibrary', what, says, { name: 'glacier', ...given });

/** Bad libraries. `pure/kinds.test.ts` and the tests of each library type cover all bad settings. */
const libraries: BadInput[] = [
  ...['', '-a', 'a\0', 'ä', 'x'.repeat(64), 'drive', 'directory'].map((name) =>
    added(`named ${shorten(name)}`, /^name must /, { name }),
  ),
  added('of an unknown type', /"__proto__" does not exist in "LibraryType" enum/, { type: '__proto__' }),
  ...['', '[]', '{"directory":"/tapes"}'].map((settings) =>
    added(`with settings ${settings}`, /Expected type "LibrarySettingInput" to be an object/, { settings }),
  ),
  ...['[', '{"a": ', '[1,]'].flatMap((value) => {
    const says = /^settings must contain valid JSON in "read", because the value begins like JSON$/;
    const settings = [{ name: 'read', value }];
    return [
      added(`with the setting ${value}`, says, { settings }),
      changed(`with the setting ${value}`, says, { settings }),
    ];
  }),
  added('with a setting twice', /^settings must not contain "directory" twice$/, { settings: [DIRECTORY, DIRECTORY] }),
  ...['', 'x', '__proto__', 'constructor', 'a\0'].map((name) =>
    added(`with the setting ${shorten(name)}`, /^settings\.?.* (is not a setting|must) /, {
      settings: [DIRECTORY, { name, value: 'x' }],
    }),
  ),
  added('without settings', /^settings\.directory must /, { settings: [] }),
  added('with a bad setting', /^settings\.directory must /, { settings: [{ name: 'directory', value: 'tapes' }] }),
  changed('with the setting of another type', /^settings\.directory is not a setting of this library type; /, {
    settings: [DIRECTORY],
  }),
  added('with settings that are too long', /^settings must have at most 65536 bytes as JSON, not 1000\d\d$/, {
    settings: [{ name: 'directory', value: `/${'x'.repeat(100_000)}` }],
  }),
  ...[0, -1, 257].flatMap((drives) => [
    added(`with ${drives} drives`, DRIVES, { driveCount: drives }),
    changed(`with ${drives} drives`, DRIVES, { driveCount: drives }),
  ]),
  ...['depthFiles', 'depthBytes'].map((depth) =>
    added(`of drives with ${depth}`, new RegExp(`^${depth} must not be set to`), { [depth]: 5 }),
  ),
  changed('named directory', /^name must /, { name: 'directory' }),
  changed('of an unknown name', /^there is no library "nowhere"$/, { name: 'nowhere' }),
  changed('to another type', /^expectedType must remain "s3", not "directory"/, { expectedType: 'DIRECTORY' }),
  ...[{ depthFiles: 0 }, { depthFiles: 1_000_001 }, { depthBytes: '0' }, { depthBytes: '-1' }].map((depth) =>
    changed(`with ${shorten(depth)}`, /^depth(Files|Bytes) must be /, depth),
  ),
  ...mutateEach('removeLibrary', 'name', /^(name must |there is no library "")/, [
    ...['', 'a\nb', 'a\0b', '\ud800', 'directory'],
  ]),
  ...mutateEach('removeLibrary', 'name', /^there is no library "nowhere"$/, ['nowhere']),
];

const many = (count: number) => Array.from({ length: count }, (_, n) => `V${n}`);
const base64 = (text: string) => Buffer.from(text).toString('base64');
const NO_ID = [0, -1, 2_000_000_000];

const tokens: BadInput[] = [
  ...['', 'a:b', 'a\nb', 'a\0b', 'a\ud800b', 'x'.repeat(2001)].map((name) =>
    mutate('createToken', `for ${shorten(name)}`, /^name must /, { name, role: 'USER' }),
  ),
  mutate('createToken', 'with an unknown role', /TokenRole/, { name: 'a', role: 'ROOT' }),
  mutate('createToken', 'for a service without quotas', /^quotas must list the users/, { name: 'a', role: 'SERVICE' }),
  mutate('createToken', 'for a user with quotas', /^quotas must be absent unless role is SERVICE$/, {
    ...{ name: 'a', role: 'USER', quotas: ['alice'] },
  }),
  mutate('createToken', 'for 100,001 users', /^quotas must list at most 1000 users, not 100001$/, {
    ...{ name: 'a', role: 'SERVICE', quotas: many(100_001) },
  }),
  mutate('createToken', 'with an end in the past', /^expiresAt must be in the future/, {
    ...{ name: 'a', role: 'USER', expiresAt: '2001-01-01' },
  }),
  mutate('createToken', 'with a note of two lines', /^note must not contain control characters/, {
    ...{ name: 'a', role: 'USER', note: 'a\nb' },
  }),
  ...mutateEach('revokeToken', 'tokenId', /^there is no token with id -?\d+$/, NO_ID),
  ask(
    'revokeToken beyond 32 bits',
    /Int cannot represent/,
    'mutation { revokeToken(input: { tokenId: 4294967296 }) { errors { message } } }',
  ),
];

const hook = (what: string, says: RegExp, given: object) =>
  mutate('createWebhook', what, says, { quota: 'alice', url: 'https://example.org/', ...given });

/** Bad webhooks. `pure/webhook-targets.test.ts` covers all bad URLs. */
const webhooks: BadInput[] = [
  ...(
    [
      ['http://example.org/', /^url must begin with https:/],
      ['https://127.0.0.1/', /^url must not point to a private network/],
      ['https://example.org/\n', /^url must not contain control characters/],
      [`https://example.org/${'x'.repeat(2000)}`, /^url must have at most 2000 characters/],
    ] as const
  ).map(([url, says]) => hook(`for ${shorten(url)}`, says, { url })),
  hook('for no events', /^events must name at least one event$/, { events: [] }),
  hook('for an unknown event', /WebhookEvent/, { events: ['NONE'] }),
  hook('for an unknown quota', /^there is no quota for user "zaphod"$/, { quota: 'zaphod' }),
  hook('with a note of two lines', /^note must not contain control characters/, { note: 'a\nb' }),
  ...['removeWebhook', 'testWebhook', 'rotateWebhookSecret'].flatMap((field) =>
    mutateEach(field, 'webhookId', /^there is no webhook with id -?\d+$/, NO_ID),
  ),
  mutate('updateWebhook', 'of an unknown id', /^there is no webhook with id 7$/, { webhookId: 7, isEnabled: true }),
  ask(
    'messages of an unknown webhook',
    /^there is no webhook with id 7$/,
    '{ webhookMessages(webhookId: 7) { edges { cursor } } }',
  ),
];

const SIZE = /^size must be from 0 to 9223372036854775807 bytes, not /;
const NO_SIZES = ['-1', '9223372036854775808'];

const quotas: BadInput[] = [
  mutate('setQuota', 'without a size for a new user', /^size is required/, { user: 'new' }),
  ...NO_SIZES.map((size) => mutate('setQuota', `of ${size} bytes`, SIZE, { user: 'new', size })),
  ...[0, -1, 1e-7, 1e300].map((weight) =>
    mutate('setQuota', `with the weight ${weight}`, /^weight must be a number from 0.000001 to 1000000, not /, {
      ...{ user: 'alice', weight },
    }),
  ),
  ...['', 'a\nb', 'a\0b'].map((user) => mutate('setQuota', `of ${shorten(user)}`, /^user must /, { user, size: 1 })),
  mutate('setQuota', 'with a bad address', /^email must be an email address/, { user: 'alice', email: TWO_HEADERS }),
  mutate('setQuota', 'with notes of two lines', /^notes must not contain control characters/, {
    ...{ user: 'alice', notes: 'a\nb' },
  }),
  ...mutateEach('removeQuota', 'user', /^there is no quota for user "x"$/, ['x']),
  ...mutateEach('removeQuota', 'user', /^user must be valid Unicode/, ['\ud800']),
  ...['removeQuota', 'purgeUser'].flatMap((field) => mutateEach(field, 'user', /has 1 live request\b/, ['alice'])),
  ...mutateEach('purgeUser', 'user', /^user must /, [
    ...['', 'a\nb', 'a\0b', '\ud800', 'x'.repeat(2001), 'system', 'anybody'],
  ]),
  ...mutateEach('purgeUser', 'user', /^there is no data about user "nobody at all"$/, ['nobody at all']),
];

const NO_DISK = /^there is no restore disk "\/nowhere"$/;
const NO_MOUNTPOINTS = ['', '.', 'data/restore', '../x', 'a\0b', '/a\0b', '/\ud800', `/${'x'.repeat(3000)}`];

const disks: BadInput[] = [
  mutate('resizeRestoreDisk', 'of ../x', /^mountpoint must /, { mountpoint: '../x', size: 1 }),
  ...mutateEach('removeRestoreDisk', 'mountpoint', /^mountpoint must /, NO_MOUNTPOINTS),
  mutate('resizeRestoreDisk', 'of an unknown disk', NO_DISK, { mountpoint: '/x/../nowhere/', size: 1 }),
  ...mutateEach('removeRestoreDisk', 'mountpoint', NO_DISK, ['/nowhere']),
  ...NO_SIZES.map((size) => mutate('resizeRestoreDisk', `to ${size} bytes`, SIZE, { mountpoint: '/nowhere', size })),
];

const CURSOR = /^after must be a cursor of this list, not /;
const NO_FINDINGS = ['x', 'quota-used:', 'quota-used:-2', 'quota-used:9999999999999999999', 'quota-used:1 OR 1=1'];

const findings: BadInput[] = [
  ...[...NO_FINDINGS, '__proto__:1', 'no-kind:1'].flatMap((place) => {
    const after = base64(place);
    return [
      ask(`findings after ${place}`, CURSOR, `{ doctorFindings(after: "${after}") { edges { cursor } } }`),
      mutate('repairFindings', `after ${place}`, CURSOR, { after }),
    ];
  }),
  ask('findings backwards', /^Unknown argument "last"/, '{ doctorFindings(last: 1) { edges { cursor } } }'),
];

const NAMES_OR_ALL = /^names must contain a volume if all is not true, and must be empty if all is true/;
const volume = (what: string, says: RegExp, given: object) =>
  mutate('setVolumeMedium', what, says, { medium: 'LTO_8', ...given });

const volumes: BadInput[] = [
  volume('with an unknown medium', /"__proto__" does not exist in "Medium" enum/, { all: true, medium: '__proto__' }),
  volume('with neither names nor all', NAMES_OR_ALL, {}),
  volume('with no names', NAMES_OR_ALL, { names: [] }),
  volume('with names and all', NAMES_OR_ALL, { names: ['V00001'], all: true }),
  volume('with 100,000 unknown names', /^there is no volume "V0"$/, { names: many(100_000) }),
  volume('with NUL in a name', /^names must not contain the character NUL/, { names: ['a\0'] }),
];

export const badWrites: BadInput[] = [
  ...[...bodies, ...requests, ...libraries, ...tokens],
  ...[...webhooks, ...quotas, ...disks, ...findings, ...volumes],
];
