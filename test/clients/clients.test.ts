/**
 * Unmodified clients over TLS with a token: gfal2, davix and curl from Debian packages. The tests fail if a client is
 * missing.
 */
import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { readConfig } from '../../src/config/config.js';
import { packageRoot } from '../../src/core/package-root.js';
import { createToken } from '../../src/domain/access/tokens.js';
import { addLibrary } from '../../src/domain/libraries/changes.js';
import { startApp, type TestApp } from '../support/app.js';
import { makeCertificate } from '../support/certificate.js';
import { addFiles, addQuota, putOnTape } from '../support/factories.js';
import { addSecret, LIBRARY_ENV } from '../support/library-dir.js';
import { createMemoryLibrary } from '../support/memory-library.js';
import { startProcess } from '../support/process.js';
import { makeTempDir } from '../support/temp-dir.js';
import { waitFor } from '../support/wait.js';

const dir = makeTempDir();
const library = createMemoryLibrary();
const contents = new Map<string, Buffer>();
let app: TestApp;
/** A second Tapegate that uses `app` as its library. */
let near: TestApp;
let env: Record<string, string>;

const adler32 = (bytes: Buffer) => {
  let [a, b] = [1, 0];
  for (const byte of bytes) [a, b] = [(a + byte) % 65_521, (b + a + byte) % 65_521];
  return (b * 65_536 + a).toString(16).padStart(8, '0');
};

beforeAll(async () => {
  for (const program of ['/usr/bin/python3', 'davix-get', 'davix-ls', 'curl']) {
    const args = program.endsWith('python3') ? ['-c', 'import gfal2'] : ['--version'];
    execFileSync(program, args, { stdio: ['ignore', 'ignore', 'inherit'] });
  }
  const { cert, key } = makeCertificate();
  const files = { tlsCert: path.join(dir, 'cert.pem'), tlsKey: path.join(dir, 'key.pem') };
  writeFileSync(files.tlsCert, cert);
  writeFileSync(files.tlsKey, key, { mode: 0o600 });
  // OpenSSL looks for certificate authorities here
  mkdirSync(path.join(dir, 'ca'));
  const hash = execFileSync('openssl', ['x509', '-hash', '-noout', '-in', files.tlsCert], { encoding: 'utf8' }).trim();
  writeFileSync(path.join(dir, 'ca', `${hash}.0`), cert);
  app = await startApp({ library, config: config(files) });
  env = {
    BEARER_TOKEN: await createUserToken(app, 'alice'),
    CA_PATH: path.join(dir, 'ca'),
    X509_CERT_DIR: path.join(dir, 'ca'),
    GFAL_PYTHONBIN: '/usr/bin/python3', // Debian has no /usr/bin/python
  };
  const rows = ['large', 'small', 'with space'].map((name, n) => {
    const bytes = Buffer.alloc(n === 0 ? 30_000_001 : 12_345, `${name} `);
    contents.set(name, bytes);
    putOnTape(library, { volume: 'V1', position: BigInt(n + 1), bytes });
    const checksum = `adler32:${adler32(bytes)}`;
    return { path: `/grid/data/${name}`, size: BigInt(bytes.length), volume: 'V1', position: BigInt(n + 1), checksum };
  });
  await addFiles(app.ctx, rows);
  near = await startNear(files);
  await addFiles(
    near.ctx,
    rows.map((row) => ({ ...row, volume: 'far', position: null, library: 'far' })),
  );
});
afterAll(async () => {
  await near?.close();
  await app?.close();
  rmSync(dir, { recursive: true, force: true });
});

/** Serves all files, because the modes of the directories are unknown: only the group can read restored files. */
const transfer = { ...readConfig({}).transfer, webdav: 'all' as const };
const config = (files: { tlsCert: string; tlsKey: string }) => ({
  ...files,
  transfer,
  access: { auth: new Set(['token'] as const) },
});

async function createUserToken({ ctx }: TestApp, name: string): Promise<string> {
  await addQuota(ctx, name, 10n ** 12n);
  return (await createToken(ctx, { name, role: 'USER' })).secret;
}

async function startNear(files: { tlsCert: string; tlsKey: string }): Promise<TestApp> {
  const started = await startApp({
    library: createMemoryLibrary(),
    config: config(files),
    engine: { env: LIBRARY_ENV },
  });
  const tokenFile = addSecret(await createUserToken(app, 'near'));
  const settings = {
    url: `${app.url}/webdav`,
    tokenFile,
    caFile: addSecret(readFileSync(files.tlsCert, 'utf8')),
    pollLeastSeconds: 1,
  };
  await addLibrary(started.ctx, { name: 'far', kind: 'wlcg', settings });
  return started;
}

/** Runs a program. @returns the standard output of the program */
async function run(program: string, args: string[], token = env.BEARER_TOKEN ?? ''): Promise<string> {
  const options = { env: { ...env, BEARER_TOKEN: token } };
  const { code, stdout, stderr } = await startProcess(program, args, options).ended;
  if (code !== 0) throw new Error(`${program} ended with ${code}: ${stdout}${stderr}`);
  return stdout;
}

const hashOf = (bytes: Buffer | undefined) =>
  createHash('sha256')
    .update(bytes ?? '')
    .digest('hex');

test.each([
  ['tapes', () => app],
  ['another Tapegate', () => near],
])(
  'gfal2 stages files from %s, polls, reads size, checksum and bytes, copies, releases and cancels',
  async (_from, find) => {
    const served = find();
    const token = served === app ? env.BEARER_TOKEN : await createUserToken(served, 'alice');
    const base = `davs://${new URL(served.url).host}/webdav/grid/data`;
    const script = path.join(packageRoot, 'test/clients/gfal.py');
    const output = await run('/usr/bin/python3', [script, base, dir, '//large', '/small', '/none'], token);
    const steps = output
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line) as [string, unknown]);
    const adler = adler32(contents.get('large') ?? Buffer.alloc(0));
    expect(steps).toEqual([
      ['taperestapi.version', 'v1'],
      ['taperestapi.uri', `${served.url}/tape_rest/v1`],
      ['taperestapi.sitename', '127.0.0.1'],
      ['status before', 'NEARLINE'],
      ['submitted', [[null, null, null], 36]],
      ['online', [null, null]],
      ['missing', [expect.stringContaining('there is no such file')]],
      ['status', 'ONLINE_AND_NEARLINE'],
      ['size', 30_000_001],
      ['is directory', true],
      ['list', ['large', 'small', 'with%20space']],
      ['adler32', adler],
      ['copy', 0],
      ['copy', 0],
      ['spaced', [null]],
      ['read', 'small smal'],
      ['released', [null, null]],
      ['status after', 'NEARLINE'],
      ['adler32 of the tape copy', adler],
      ['archived', [null, null]],
      ['aborted', [null, null]],
    ]);
    expect(hashOf(readFileSync(path.join(dir, '0')))).toBe(hashOf(contents.get('large')));
    expect(hashOf(readFileSync(path.join(dir, '1')))).toBe(hashOf(contents.get('small')));
  },
);

test('davix lists and reads files, and curl reads ranges and resumes', async () => {
  const { host } = new URL(app.url);
  const url = `davs://${host}/webdav/grid/data`;
  const davix = ['--capath', env.CA_PATH ?? '', '-H', `Authorization: Bearer ${env.BEARER_TOKEN}`];
  await waitForRestored('large');
  expect((await run('davix-ls', [...davix, '-l', url])).trim().split('\n')).toHaveLength(3);
  await run('davix-get', [...davix, `${url}/large`, path.join(dir, 'davix')]);
  expect(hashOf(readFileSync(path.join(dir, 'davix')))).toBe(hashOf(contents.get('large')));
  const part = path.join(dir, 'curl');
  const curl = ['-fsS', '--cacert', path.join(dir, 'cert.pem'), '-H', `Authorization: Bearer ${env.BEARER_TOKEN}`];
  writeFileSync(part, (contents.get('large') ?? Buffer.alloc(0)).subarray(0, 1_234_567));
  await run('curl', [...curl, '-C', '-', '-o', part, `https://${host}/webdav/grid/data/large`]);
  expect(hashOf(readFileSync(part))).toBe(hashOf(contents.get('large')));
  const ranges = await run('curl', [...curl, '-r', '0-4,10-14', `https://${host}/webdav/grid/data/large`]);
  expect(ranges.match(/^large|^e larg?/gm)).not.toBeNull();
});

test('gfal-copy -f of a file on tape fails at once, and gfal-sum reads its checksums', async () => {
  const bytes = Buffer.alloc(5000, 'tape only ');
  const checksum = `adler32:${adler32(bytes)}`;
  await addFiles(app.ctx, [{ path: '/grid/tape/only', size: 5000n, volume: 'V1', position: 9n, checksum }]);
  const url = `davs://${new URL(app.url).host}/webdav/grid/tape/only`;
  expect((await run('gfal-sum', [url, 'ADLER32'])).trim()).toBe(`${url} ${adler32(bytes)}`);
  const both = { path: '/grid/tape/both', size: 5000n, volume: 'V1', position: 10n };
  await addFiles(app.ctx, [{ ...both, checksum: `sha256:${hashOf(bytes)}`, adler32: adler32(bytes) }]);
  const second = `davs://${new URL(app.url).host}/webdav${both.path}`;
  expect((await run('gfal-sum', [second, 'SHA256'])).trim()).toBe(`${second} ${hashOf(bytes)}`);
  expect((await run('gfal-sum', [second, 'ADLER32'])).trim()).toBe(`${second} ${adler32(bytes)}`);
  const copied = run('gfal-copy', ['-f', url, `file://${path.join(dir, 'nearline')}`]);
  await expect(copied).rejects.toThrow(/^gfal-copy ended with \d+: (?!.*recursion)/s);
  await expect(copied).rejects.toThrow('415');
  const davix = ['--capath', env.CA_PATH ?? '', '-H', `Authorization: Bearer ${env.BEARER_TOKEN}`];
  await expect(run('davix-get', [...davix, url, path.join(dir, 'davix-tape')])).rejects.toThrow('415');
});

/** Stages a file again after gfal2 has cancelled the stage request, and waits until the file is on disk. */
async function waitForRestored(name: string): Promise<void> {
  const body = JSON.stringify({ files: [{ path: `/grid/data/${name}` }] });
  const curl = ['-fsS', '--cacert', path.join(dir, 'cert.pem'), '-H', `Authorization: Bearer ${env.BEARER_TOKEN}`];
  const { requestId } = JSON.parse(await run('curl', [...curl, '-d', body, `${app.url}/tape_rest/v1/stage`]));
  await waitFor(`${name} to be on disk`, async () =>
    (await run('curl', [...curl, `${app.url}/tape_rest/v1/stage/${requestId}`])).includes('COMPLETED'),
  );
}
