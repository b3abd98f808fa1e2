/** What the kind `wlcg` takes as settings, and how it refuses what it does not. */
import { expect, test } from 'vitest';
import { SettingsError } from '../../src/errors.js';
import { wlcg } from '../../src/tape/wlcg/index.js';

const url = 'https://door.example.org:2880/data';

const refusal = (settings: unknown) => {
  try {
    wlcg.parse(settings);
  } catch (error) {
    if (!(error instanceof SettingsError)) throw error;
    return [error.setting, error.message];
  }
  return undefined;
};

test.each<[object, string, string]>([
  [{}, 'url', 'must be given: a text of one line'],
  [
    { url: 'http://door.example.org/' },
    'url',
    'must begin with https:// (http:// on this host alone), not "http://door.example.org/"',
  ],
  [{ url: 'file:///data' }, 'url', 'must begin with https:// (http:// on this host alone), not "file:///data"'],
  [
    { url: 'https://ann:hush@door.example.org/' },
    'url',
    'must be a URL without a login and without a query, not one of 34 characters',
  ],
  [{ url: `${url}?a=b` }, 'url', 'must be a URL without a login and without a query, not one of 38 characters'],
  [
    { url, discoveryUrl: 'nowhere' },
    'discoveryUrl',
    'must be a URL without a login and without a query, not one of 7 characters',
  ],
  [{ url, pathPrefix: 'archive' }, 'pathPrefix', 'must be an absolute path, not "archive"'],
  [{ url, remotePathPrefix: 'pnfs' }, 'remotePathPrefix', 'must be an absolute path, not "pnfs"'],
  [{ url, tokenFile: 'token' }, 'tokenFile', 'must be an absolute path, not what is given'], // the token itself, maybe
  [{ url, tokenFile: '/token', tokenEnv: 'TOKEN' }, 'tokenEnv', 'cannot be given beside tokenFile, which is "/token"'],
  [{ url, tokenEnv: 'eyJhbGciOi.hush' }, 'tokenEnv', 'must be the name of a variable'],
  [
    { url, tokenOrigins: ['https://api.example.org/v1'] },
    'tokenOrigins',
    'must be like https://host:port, not "https://api.example.org/v1"',
  ],
  [{ url, keyFile: '/key' }, 'certFile', 'must be given beside keyFile, which is "/key"'],
  [{ url, diskLifetime: 'P1Y' }, 'diskLifetime', 'must be a duration like P2D or PT36H, not "P1Y"'],
  [{ url, diskLifetime: 'PT0S' }, 'diskLifetime', 'must be a duration like P2D or PT36H, not "PT0S"'],
  [{ url, diskLifetime: '2' }, 'diskLifetime', 'must be a duration like P2D or PT36H, not "2"'],
  [
    { url, targetedMetadata: '{"site"' },
    'targetedMetadata',
    'must be an object with an object for each site, not "{\\"site\\""',
  ],
  [
    { url, targetedMetadata: { site: 'a' } },
    'targetedMetadata',
    'must be an object with an object for each site, not "{\\"site\\":\\"a\\"}"',
  ],
  [
    { url, targetedMetadata: { site: { a: 'x'.repeat(5000) } } },
    'targetedMetadata',
    'must have 4096 characters at most, not 5017',
  ],
  [{ url, releases: 'perhaps' }, 'releases', 'must be true or false, not "perhaps"'],
  [{ url, stageFiles: 0 }, 'stageFiles', 'must be a whole number from 1 to 10000, not 0'],
  [{ url, infoFiles: 'many' }, 'infoFiles', 'must be a whole number from 1 to 10000, not "many"'],
  [
    { url, pollLeastSeconds: 60, pollMostSeconds: 30 },
    'pollMostSeconds',
    'must be pollLeastSeconds (60) at least, not 30',
  ],
  [{ url, silenceSeconds: 1.5 }, 'silenceSeconds', 'must be a whole number from 1 to 86400, not 1.5'],
])('settings %j are refused', (settings, name, problem) => {
  expect(refusal(settings)).toEqual([name, `${name} ${problem}`]);
});

test('a setting that there is not is refused', () => {
  expect(refusal({ url, tokens: '/token' })).toEqual([
    'tokens',
    expect.stringMatching(/^tokens is no setting of this kind/),
  ]);
});

test('settings are completed: one door for all, five hundred files a call, a look a minute', () => {
  const settings = wlcg.parse({ url, tokenFile: '/token', pathPrefix: '/archive/', certFile: '/proxy.pem' });
  expect(settings).toMatchObject({
    prefixes: { own: '/archive', remote: '/archive' },
    token: { file: '/token' },
    trusted: new Set(['https://door.example.org:2880']),
    identity: { cert: '/proxy.pem', key: '/proxy.pem' },
    diskLifetime: undefined,
    releases: true,
    chunks: { stage: 500, info: 500, release: 500 },
    pollSeconds: { least: 60, most: 600 },
  });
  expect(settings.discoveryUrl.href).toBe('https://door.example.org:2880/.well-known/wlcg-tape-rest-api');
});

test('what has a name of its own is taken as texts of a command line, too', () => {
  const metadata = '{"fake-site":{"activity":"restores"}}';
  const settings = wlcg.parse({
    url,
    targetedMetadata: metadata,
    releases: 'false',
    stageFiles: '200',
    diskLifetime: 'P2D',
  });
  expect(settings).toMatchObject({
    targetedMetadata: { 'fake-site': { activity: 'restores' } },
    releases: false,
    chunks: { stage: 200 },
    diskLifetime: 'P2D',
  });
});
