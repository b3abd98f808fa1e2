/** Settings of the library type `wlcg`. */
import { expect, test } from 'vitest';
import { parseSettings } from '../../src/tape/kind.js';
import { wlcg } from '../../src/tape/wlcg/index.js';

const url = 'https://door.example.org:2880/data';

const URL_PROBLEM = 'must be an http or https URL without credentials or a query';
const DURATION = 'must be a duration like P2D or PT36H, not';
const METADATA = 'must be an object that maps each site name to an object, not';

test.each<[settings: object, setting: string, problem: string]>([
  [{ url: undefined }, 'url', 'must be given: a single-line string'],
  [
    { url: 'http://door.example.org/' },
    'url',
    'must begin with https:// (or http:// for this host), not "http://door.example.org/"',
  ],
  [{ url: 'file:///data' }, 'url', URL_PROBLEM],
  [{ url: 'https://ann:hush@door.example.org/' }, 'url', URL_PROBLEM],
  [{ url: `${url}?a=b` }, 'url', URL_PROBLEM],
  [{ discoveryUrl: 'nowhere' }, 'discoveryUrl', URL_PROBLEM],
  [{ pathPrefix: 'archive' }, 'pathPrefix', 'must be an absolute path, not "archive"'],
  [{ remotePathPrefix: 'pnfs' }, 'remotePathPrefix', 'must be an absolute path, not "pnfs"'],
  ...['/etc/passwd', '../token', 'a/b', '.token', 'token.hosts'].flatMap((name): [object, string, string][] =>
    // a bad value could be the token itself
    ['tokenFile', 'caFile', 'certFile', 'keyFile'].map((setting) => [
      { certFile: 'proxy', [setting]: name },
      setting,
      'must be the name of a file in TAPEGATE_LIBRARY_DIR/secrets, not ',
    ]),
  ),
  [{ tokenEnv: 'PGPASSWORD' }, 'tokenEnv', 'is not a setting of this library type'],
  [{ tokenOrigins: ['https://a.org/v1'] }, 'tokenOrigins', 'must be like https://host:port, not "https://a.org/v1"'],
  [{ keyFile: 'key' }, 'certFile', 'is required with keyFile, which is "key"'],
  ...['P1Y', 'PT0S', '2'].map((diskLifetime): [object, string, string] => [
    { diskLifetime },
    'diskLifetime',
    `${DURATION} "${diskLifetime}"`,
  ]),
  [{ targetedMetadata: '{"site"' }, 'targetedMetadata', `${METADATA} "{\\"site\\""`],
  [{ targetedMetadata: { site: 'a' } }, 'targetedMetadata', `${METADATA} "{\\"site\\":\\"a\\"}"`],
  [
    { targetedMetadata: { site: { a: 'x'.repeat(5000) } } },
    'targetedMetadata',
    'must have at most 4096 characters, not 5017',
  ],
  [{ releases: 'perhaps' }, 'releases', 'must be true or false, not "perhaps"'],
  [{ stageFiles: 0 }, 'stageFiles', 'must be a whole number from 1 to 10000, not 0'],
  [{ infoFiles: 'many' }, 'infoFiles', 'must be a whole number from 1 to 10000, not "many"'],
  [{ pollLeastSeconds: 60, pollMostSeconds: 30 }, 'pollMostSeconds', 'must be at least pollLeastSeconds (60), not 30'],
  [{ silenceSeconds: 1.5 }, 'silenceSeconds', 'must be a whole number from 1 to 86400, not 1.5'],
  [{ tokens: '/token' }, 'tokens', 'is not a setting of this library type'],
])('settings %j are refused', (settings, setting, problem) => {
  const message = expect.stringContaining(`${setting} ${problem}`);
  expect(() => parseSettings(wlcg.settings, { url, ...settings })).toThrow(
    expect.objectContaining({ setting, message }),
  );
});

test('missing settings have their defaults', () => {
  const settings = parseSettings(wlcg.settings, {
    url,
    tokenFile: 'token',
    pathPrefix: '/archive/',
    certFile: 'proxy.pem',
  });
  expect(settings).toMatchObject({
    prefixes: { own: '/archive', remote: '/archive' },
    token: 'token',
    trusted: new Set(['https://door.example.org:2880']),
    identity: { cert: 'proxy.pem', key: 'proxy.pem' },
    releases: true,
    stageFiles: 500,
    infoFiles: 500,
    releaseFiles: 500,
    pollSeconds: { least: 60, most: 600 },
  });
  expect(settings.discoveryUrl.href).toBe('https://door.example.org:2880/.well-known/wlcg-tape-rest-api');
});

test('settings may be texts, as on a command line', () => {
  const targetedMetadata = '{"fake-site":{"activity":"restores"}}';
  expect(
    parseSettings(wlcg.settings, { url, targetedMetadata, releases: 'false', stageFiles: '200', diskLifetime: 'P2D' }),
  ).toMatchObject({
    targetedMetadata: { 'fake-site': { activity: 'restores' } },
    releases: false,
    stageFiles: 200,
    diskLifetime: 'P2D',
  });
});
