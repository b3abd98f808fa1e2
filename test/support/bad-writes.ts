/** Bad bodies, and bad values in each of their fields. */
import { MAX_BODY_BYTES } from '../../src/http-body.js';
import { ask, type BadInput, CREATE, graphql, NAMES, rest, writers } from './bad-input-forms.js';

const deep = (inner = '') => `${'['.repeat(100_000)}${inner}${']'.repeat(100_000)}`;
const tooLong = () => Buffer.alloc(MAX_BODY_BYTES + 1, ' ');
const NOT_UTF8 = Buffer.from([0x5b, 0x7b, 0x22, 0xff, 0xfe, 0x22, 0x3a, 0x31, 0x7d, 0x5d]);

const bodies: BadInput[] = [
  rest('an empty body', /^the body is not JSON: /, { body: '' }),
  rest('truncated JSON', /^the body is not JSON: /, { body: '[{"quota":"alice","patterns":"/a' }),
  rest('malformed JSON', /^the body is not JSON: /, { body: '[{quota: alice}]' }),
  rest('two JSON texts', /^the body is not JSON: /, { body: '[{}] [{}]' }),
  rest('a body that is not UTF-8', /^the body is not JSON: /, { body: NOT_UTF8 }),
  rest('100,000 nested arrays', /too deeply$/, { body: deep() }),
  rest('100,000 nested arrays around a long integer', /too deeply$/, { body: deep('12345678901234567890') }),
  rest('100,000 nested arrays in a field', /too deeply$/, {
    body: `{"quota":${deep()}}`,
  }),
  rest('a number of a million digits', /a number has more than 1000 characters$/, { body: `{"x":${'9'.repeat(1e6)}}` }),
  rest('no object', /^the body must be an array holding one object, not an array of 0$/, { body: '[]' }),
  rest('a gzip body', /^the body must be sent without Content-Encoding, not as "gzip"$/, {
    body: Buffer.from([31, 139, 8, 0]),
    headers: { 'Content-Encoding': 'gzip' },
    status: 415,
  }),
  graphql('an empty body', /^the body is not JSON: /, '', 400),
  graphql('truncated JSON', /^the body is not JSON: /, '{"query":"{ quota', 400),
  graphql('a body that is not UTF-8', /^the body is not JSON: /, NOT_UTF8, 400),
  graphql('100,000 nested arrays', /./, deep(), 400),
  graphql('100,000 nested objects', /too deeply|JSON/, `${'{"a":'.repeat(100_000)}12345678901234567890`, 400),
  graphql('a query that is no string', /query/, { query: 5 }, 400),
  graphql('variables that are no object', /variables/, { query: CREATE, variables: 'x' }, 400),
  graphql('a body of over 32 MB', /^the body must have at most 33554432 bytes$/, tooLong(), 413),
  {
    ...graphql('a gzip body', /^the body must be sent without Content-Encoding, not as "gzip"$/, '{}', 415),
    headers: { 'Content-Encoding': 'gzip' },
  },
];

const named = (field: string) => `(${field}|${NAMES[field] ?? field})`;

/** A value of a wrong type for each field; pure/bad-values.test.ts has all of them. */
const types: BadInput[] = [
  ...(['quota', 'patterns', 'label', 'retention'] as const).flatMap((field) =>
    writers(`${field} 5`, field, 5, named(field), 400),
  ),
  ...['notify_on_first_file', 'notify_on_last_file'].flatMap((field) =>
    writers(`${field} of a list`, field, [['/a']], named(field), 400),
  ),
  ...writers('files that are an object', 'files', {}, 'files', 400),
  ...writers('files of numbers', 'files', [5], 'files', 400),
];

/** A text for each field that is refused there; pure/bad-values.test.ts has all of them. */
const texts: BadInput[] = [
  ...writers('a quota with NUL', 'quota', 'a\0b', '^quota must not hold the character NUL'),
  ...writers('a pattern with a lone surrogate', 'patterns', 'a\ud800b', '^patterns? must be valid Unicode'),
  ...writers('a label of two lines', 'label', 'a\nb', '^label must not hold control characters'),
  ...writers('a retention that is no date', 'retention', '2027-02-29', 'a date YYYY-MM-DD or .*, not "', 400),
  ...['notify_on_first_file', 'notify_on_last_file'].flatMap((field) =>
    writers(
      `${field} with a second header`,
      field,
      'a@example.org\r\nBcc: b@example.org',
      `^${named(field)} must be an e-mail address, not `,
    ),
  ),
  ...writers('a path that leads upwards', 'files', ['/fine', '/a/../b'], '^files has a path that has the part ".."'),
];

/** What REST refuses, and GraphQL takes. */
const zones: BadInput[] = ['2027-01-01T00:00:00Z', '2027-01-01T00:00:00+01:00'].flatMap((retention) => [
  rest(`POST with retention ${retention}`, /without a zone, not "/, {
    body: { quota: 'alice', patterns: '/a/', retention },
  }),
  rest(`PUT with retention ${retention}`, /without a zone, not "/, {
    method: 'PUT',
    path: '/requests/1',
    body: { quota: 'alice', retention },
  }),
]);

const wishes: BadInput[] = [
  rest('neither patterns nor files', /^patterns or files must be given/, { body: { quota: 'alice' } }),
  rest('both patterns and files', /^patterns and files exclude each other/, {
    body: { quota: 'alice', patterns: '/a/', files: '/a' },
  }),
  ask('neither pattern nor files', /^pattern or files must be given/, CREATE, { input: { quota: 'alice' } }),
  ask('both pattern and files', /^pattern and files exclude/, CREATE, {
    input: { quota: 'alice', pattern: 'a', files: ['/a'] },
  }),
  rest('no quota', /^quota must name a user, and is missing$/, { body: { patterns: '/a/' } }),
  ask(
    'no quota',
    /Field "quota" of required type "String!" was not provided/,
    CREATE,
    { input: { pattern: '/a/' } },
    400,
  ),
  ...writers('a retention in the past', 'retention', '2001-01-01', '^retention must be in the future').slice(0, 2),
];

const FAILED = '__typename ... on Failure { message }';
const TOKEN = `mutation ($input: CreateTokenInput!) { createToken(input: $input) { ${FAILED} } }`;
const WEBHOOK = `mutation ($input: CreateWebhookInput!) { createWebhook(input: $input) { ${FAILED} } }`;
const QUOTA = `mutation ($input: SetQuotaInput!) { setQuota(input: $input) { ${FAILED} } }`;
const VOLUME = `mutation ($input: SetVolumeInput!) { setVolume(input: $input) { ${FAILED} } }`;
const DISK = `mutation ($input: ResizeDiskInput!) { resizeDisk(input: $input) { ${FAILED} } }`;
const REMOVE_DISK = `mutation ($m: String!) { removeDisk(mountpoint: $m) { ${FAILED} } }`;
const LIBRARY = `mutation ($input: AddLibraryInput!) { addLibrary(input: $input) { ${FAILED} } }`;
const SET_LIBRARY = `mutation ($input: SetLibraryInput!) { setLibrary(input: $input) { ${FAILED} } }`;
const REMOVE_LIBRARY = `mutation ($n: String!) { removeLibrary(name: $n) { ${FAILED} } }`;
const FORGET = `mutation ($u: String!) { forgetUser(user: $u) { ${FAILED} } }`;
const many = (count: number) => Array.from({ length: count }, (_, n) => `V${n}`);

/** A library that is right but for what is given. */
const library = (given: object) => ({
  input: { name: 'east', kind: 'directory', settings: JSON.stringify({ folder: '/tapes' }), ...given },
});

const libraries: BadInput[] = [
  ...['', '-a', 'a/b', 'a b', 'a\0', '\ud800', 'ä', 'x'.repeat(64), 'drive', 'directory', 'memory'].map((name) =>
    ask(`addLibrary ${JSON.stringify(name).slice(0, 20)}`, /^name must /, LIBRARY, library({ name })),
  ),
  ...['', 'lto', '__proto__', 'Directory'].map((kind) =>
    ask(`addLibrary of the kind ${kind}`, /^kind must be one of directory/, LIBRARY, library({ kind })),
  ),
  ...['', '[]', '"x"', 'null', '{"folder": '].map((settings) =>
    ask(
      `addLibrary with settings ${settings}`,
      /^settings must be the text of a JSON object/,
      LIBRARY,
      library({ settings }),
    ),
  ),
  ...['tapes', 7, ['/tapes'], '/a\0b', null].map((folder) =>
    ask(
      `addLibrary in the folder ${JSON.stringify(folder)}`,
      /^settings\.folder must /,
      LIBRARY,
      library({ settings: JSON.stringify({ folder }) }),
    ),
  ),
  ask(
    'addLibrary with a setting that its kind does not have',
    /^settings\.depth is no setting of this kind; the settings are folder$/,
    LIBRARY,
    library({ settings: JSON.stringify({ folder: '/tapes', depth: 3 }) }),
  ),
  ask(
    'addLibrary with a secret',
    /^settings\.token must not be in the settings, .*: give tokenFile, .* or tokenEnv, /,
    LIBRARY,
    library({ settings: JSON.stringify({ folder: '/tapes', token: 'hush' }) }),
  ),
  ask(
    'addLibrary with settings of 100 KB',
    /^settings must have at most 65536 bytes as JSON, not 1000\d\d$/,
    LIBRARY,
    library({ settings: JSON.stringify({ folder: `/${'x'.repeat(100_000)}` }) }),
  ),
  ...[0, -1, 257].map((drives) =>
    ask(
      `addLibrary with ${drives} drives`,
      /^drives must be a whole number from 1 to 256, not /,
      LIBRARY,
      library({ drives }),
    ),
  ),
  ...['depthFiles', 'depthBytes'].map((depth) =>
    ask(
      `addLibrary with drives and ${depth}`,
      new RegExp(`^${depth} is of libraries that stage`),
      LIBRARY,
      library({ [depth]: 5 }),
    ),
  ),
  ...['', 'a\nb', 'a\0b', '\ud800', 'directory'].map((n) =>
    ask(`removeLibrary ${JSON.stringify(n)}`, /^(name must |there is no library "")/, REMOVE_LIBRARY, { n }),
  ),
  ask('removeLibrary of none', /^there is no library "nowhere"$/, REMOVE_LIBRARY, { n: 'nowhere' }),
];

/** A change of a library that is there, by a test that adds it. */
const change = (given: object) => ({ input: { name: 'glacier', ...given } });

const changes: BadInput[] = [
  ...['', 'a\nb', 'a\0b', '\ud800', 'directory'].map((name) =>
    ask(`setLibrary ${JSON.stringify(name)}`, /^(name must |there is no library "")/, SET_LIBRARY, change({ name })),
  ),
  ask('setLibrary of none', /^there is no library "nowhere"$/, SET_LIBRARY, change({ name: 'nowhere' })),
  ...['directory', 'command-staging', '', '__proto__'].map((kind) =>
    ask(`setLibrary to the kind ${kind}`, /^kind must stay "s3", not become "/, SET_LIBRARY, change({ kind })),
  ),
  ...['', '[]', '"x"', 'null', '{"days": '].map((settings) =>
    ask(
      `setLibrary with settings ${settings}`,
      /^settings must be the text of a JSON object/,
      SET_LIBRARY,
      change({ settings }),
    ),
  ),
  ...[
    [{ tier: 'Fast' }, /^settings\.tier must be one of Expedited, Standard, Bulk, not "Fast"$/],
    [{ bucket: null }, /^settings\.bucket must be given/],
    [{ region: '' }, /^settings\.region must be given/],
    [{ folder: '/tapes' }, /^settings\.folder is no setting of this kind; /],
    [{ secretAccessKey: 'hush' }, /^settings\.secretAccessKey must not be in the settings, /],
    [{ prefixes: [`/=${'x'.repeat(70_000)}`] }, /^settings must have at most 65536 bytes as JSON, not 70\d\d\d$/],
  ].map(([settings, told]) =>
    ask(
      `setLibrary with ${JSON.stringify(settings).slice(0, 40)}`,
      told as RegExp,
      SET_LIBRARY,
      change({ settings: JSON.stringify(settings) }),
    ),
  ),
  ...[0, -1, 257].map((drives) =>
    ask(
      `setLibrary with ${drives} drives`,
      /^drives must be a whole number from 1 to 256, not /,
      SET_LIBRARY,
      change({ drives }),
    ),
  ),
  ...[{ depthFiles: 0 }, { depthFiles: 1_000_001 }, { depthBytes: '0' }, { depthBytes: '-1' }].map((depth) =>
    ask(`setLibrary with ${JSON.stringify(depth)}`, /^depth(Files|Bytes) must be /, SET_LIBRARY, change(depth)),
  ),
];

/** What operators alone may write. */
const operators: BadInput[] = [
  ...['', 'a:b', 'a\nb', 'a\0b', 'a\ud800b', 'x'.repeat(2001)].map((name) =>
    ask(`createToken for ${JSON.stringify(name).slice(0, 20)}`, /^name must /, TOKEN, {
      input: { name, role: 'USER' },
    }),
  ),
  ask('createToken of no role', /TokenRole/, TOKEN, { input: { name: 'a', role: 'ROOT' } }, 400),
  ask('createToken of a service for nobody', /^quotas must name the users/, TOKEN, {
    input: { name: 'a', role: 'SERVICE' },
  }),
  ask('createToken of a user with quotas', /^quotas are for services only$/, TOKEN, {
    input: { name: 'a', role: 'USER', quotas: ['alice'] },
  }),
  ask('createToken for 100,001 users', /^quotas must have at most 1000 users, not 100001$/, TOKEN, {
    input: { name: 'a', role: 'SERVICE', quotas: many(100_001) },
  }),
  ask('createToken with an end in the past', /^expiresAt must be in the future/, TOKEN, {
    input: { name: 'a', role: 'USER', expiresAt: '2001-01-01' },
  }),
  ask('createToken with a note of two lines', /^note must not hold control characters/, TOKEN, {
    input: { name: 'a', role: 'USER', note: 'a\nb' },
  }),
  ...[0, -1, 2_000_000_000].map((id) =>
    ask(`revokeToken ${id}`, /^there is no token with id -?\d+$/, `mutation { revokeToken(id: ${id}) { ${FAILED} } }`),
  ),
  ...[
    ['http://example.org/', /^url must begin with https:/],
    ['https://127.0.0.1/', /^url must not lead to an address of a private network/],
    ['https://[::ffff:7f00:1]/', /^url must not lead to an address of a private network/],
    ['https://2130706433/', /^url must not lead to an address of a private network/],
    ['https://localhost/', /^url must not lead to an address of a private network/],
    ['https://a:b@example.org/', /^url must be without user and password/],
    ['https://example.org/#x', /^url must be without a fragment/],
    ['https://', /^url must be a URL/],
    ['', /^url must be a URL/],
    ['https://example.org/\n', /^url must not hold control characters/],
    [`https://example.org/${'x'.repeat(2000)}`, /^url must have at most 2000 characters/],
  ].map(([url, says]) =>
    ask(`createWebhook of ${String(url).slice(0, 30)}`, says as RegExp, WEBHOOK, { input: { quota: 'alice', url } }),
  ),
  ask('createWebhook of no events', /^events must name one event at least$/, WEBHOOK, {
    input: { quota: 'alice', url: 'https://example.org/', events: [] },
  }),
  ask(
    'createWebhook of an event that is none',
    /WebhookEvent/,
    WEBHOOK,
    { input: { quota: 'alice', url: 'https://example.org/', events: ['NONE'] } },
    400,
  ),
  ask('createWebhook of nobody', /^there is no quota for user "zaphod"$/, WEBHOOK, {
    input: { quota: 'zaphod', url: 'https://example.org/' },
  }),
  ask('createWebhook with a note of two lines', /^note must not hold control characters/, WEBHOOK, {
    input: { quota: 'alice', url: 'https://example.org/', note: 'a\nb' },
  }),
  ...['removeWebhook', 'testWebhook', 'rotateWebhookSecret'].flatMap((name) =>
    [0, -1, 2_000_000_000].map((id) =>
      ask(`${name} ${id}`, /^there is no webhook with id -?\d+$/, `mutation { ${name}(id: ${id}) { ${FAILED} } }`),
    ),
  ),
  ask(
    'setWebhook of none',
    /^there is no webhook with id 7$/,
    `mutation { setWebhook(input: { id: 7, isEnabled: true }) { ${FAILED} } }`,
  ),
  ask(
    'messages of no webhook',
    /^there is no webhook with id 7$/,
    '{ webhookMessages(webhookId: 7) { edges { cursor } } }',
  ),
  ...['x', 'Webhook:', 'V2ViaG9vazo5OTk5OTk5OTk5OTk5OTk5OTk5'].map((after) =>
    ask(`webhooks after ${after}`, /^Invalid cursor: /, `{ webhooks(after: "${after}") { edges { cursor } } }`),
  ),
  ask('revokeToken beyond 32 bits', /Int cannot represent/, `mutation { revokeToken(id: 4294967296) { __typename } }`),
  ...['x', 'Token:', 'VG9rZW46', 'VG9rZW46LTE=', 'VG9rZW46OTk5OTk5OTk5OTk5'].map((after) =>
    ask(`tokens after ${after}`, /^Invalid cursor: /, `{ tokens(after: "${after}") { edges { cursor } } }`),
  ),
  ask('a new quota without a size', /^size must be given for a new quota/, QUOTA, { input: { user: 'new' } }),
  ...['-1', '9223372036854775808'].map((size) =>
    ask(`a quota of ${size} bytes`, /^size must be from 0 to 9223372036854775807 bytes, not /, QUOTA, {
      input: { user: 'new', size },
    }),
  ),
  ...[0, -1, 1e-7, 1e300].map((weight) =>
    ask(`a weight of ${weight}`, /^weight must be a number from 0.000001 to 1000000, not /, QUOTA, {
      input: { user: 'alice', weight },
    }),
  ),
  ...['', 'a\nb', 'a\0b'].map((user) =>
    ask(`a quota of ${JSON.stringify(user)}`, /^user must /, QUOTA, { input: { user, size: 1 } }),
  ),
  ask('a quota with an address that is none', /^email must be an e-mail address/, QUOTA, {
    input: { user: 'alice', email: 'a\r\nBcc: b@example.org' },
  }),
  ask('notes of two lines', /^notes must not hold control characters/, QUOTA, {
    input: { user: 'alice', notes: 'a\nb' },
  }),
  ask('removeQuota of nobody', /^there is no quota for user "x"$/, `mutation { removeQuota(user: "x") { ${FAILED} } }`),
  ask(
    'removeQuota of a lone surrogate',
    /^user must be valid Unicode/,
    `mutation ($u: String!) { removeQuota(user: $u) { ${FAILED} } }`,
    {
      u: '\ud800',
    },
  ),
  ask(
    'removeQuota of one with requests',
    /has 1 live request\b/,
    `mutation { removeQuota(user: "alice") { ${FAILED} } }`,
  ),
  ...['', 'a\nb', 'a\0b', '\ud800', 'x'.repeat(2001), 'operator', 'system', 'anybody'].map((u) =>
    ask(`forgetUser ${JSON.stringify(u).slice(0, 20)}`, /^user must /, FORGET, { u }),
  ),
  ask('forgetUser of nobody', /^there is nothing of user "nobody at all"$/, FORGET, { u: 'nobody at all' }),
  ask('forgetUser of one with requests', /has 1 live request\b/, FORGET, { u: 'alice' }),
  ...['', '.', 'data/restore', '../x', 'a\0b', '/a\0b', '/\ud800', `/${'x'.repeat(3000)}`].flatMap((mountpoint) => [
    ask(`resizeDisk ${JSON.stringify(mountpoint).slice(0, 20)}`, /^mountpoint must /, DISK, {
      input: { mountpoint, size: 1 },
    }),
    ask(`removeDisk ${JSON.stringify(mountpoint).slice(0, 20)}`, /^mountpoint must /, REMOVE_DISK, { m: mountpoint }),
  ]),
  ask('resizeDisk of none', /^there is no restore disk "\/nowhere"$/, DISK, {
    input: { mountpoint: '/x/../nowhere/', size: 1 },
  }),
  ask('removeDisk of none', /^there is no restore disk "\/nowhere"$/, REMOVE_DISK, { m: '/nowhere' }),
  ...['-1', '9223372036854775808'].map((size) =>
    ask(`a disk of ${size} bytes`, /^size must be from 0 to 9223372036854775807 bytes, not /, DISK, {
      input: { mountpoint: '/nowhere', size },
    }),
  ),
  ...[
    'x',
    'quota-used:',
    'quota-used:-2',
    'quota-used:9999999999999999999',
    'quota-used:1 OR 1=1',
    '__proto__:1',
  ].flatMap((place) => {
    const after = Buffer.from(place).toString('base64');
    const finding = `(after: "${after}")`;
    return [
      ask(`findings after ${place}`, /^Invalid cursor: /, `{ doctorFindings${finding} { edges { cursor } } }`),
      ask(`repairs after ${place}`, /^Invalid cursor: /, `mutation { repairFindings${finding} { ${FAILED} } }`),
    ];
  }),
  ask(
    'findings after a kind that is none',
    /^after must be a place among the findings, not "no-kind"$/,
    `{ doctorFindings(after: "${Buffer.from('no-kind:1').toString('base64')}") { edges { cursor } } }`,
  ),
  ask(
    'repairs after a kind that is none',
    /^after must be a place among the findings, not "no-kind"$/,
    `mutation { repairFindings(after: "${Buffer.from('no-kind:1').toString('base64')}") { ${FAILED} } }`,
  ),
  ask('findings backwards', /read forwards/, '{ doctorFindings(last: 1) { edges { cursor } } }'),
  ask('a medium that is none', /^medium must be one of /, VOLUME, { input: { all: true, medium: '__proto__' } }),
  ask('neither names nor all', /^names must be given, or else all/, VOLUME, { input: { medium: 'lto-8' } }),
  ask('no names', /^names must be given, or else all/, VOLUME, { input: { names: [], medium: 'lto-8' } }),
  ask('names and all', /^names must be given, or else all/, VOLUME, {
    input: { names: ['V00001'], all: true, medium: 'lto-8' },
  }),
  ask('100,000 volumes that are not there', /^there is no volume "V0"$/, VOLUME, {
    input: { names: many(100_000), medium: 'lto-8' },
  }),
  ask('a volume with a NUL in its name', /^names must not hold the character NUL/, VOLUME, {
    input: { names: ['a\0'], medium: 'lto-8' },
  }),
];

export const badWrites: BadInput[] = [
  ...bodies,
  ...types,
  ...texts,
  ...zones,
  ...wishes,
  ...operators,
  ...libraries,
  ...changes,
];
