/** How the library type `wlcg` calls its server: call counts, batch sizes, URLs and credentials. */
import { chmodSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { expect, onTestFinished, test } from 'vitest';
import { TapeError } from '../../src/core/errors.js';
import { LibraryError } from '../../src/tape/drive-library.js';
import type { StagingLibrary } from '../../src/tape/staging.js';
import { makeCertificate } from '../support/certificate.js';
import { expectFailure } from '../support/failure.js';
import { addSecret, secretFile } from '../support/library-dir.js';
import { ask, errorOf, makeReady, putFiles, readStaged, staged } from '../support/staging-bench.js';
import { describeStagingLibrary } from '../support/staging-library.js';
import { quiet } from '../support/tape-library.js';
import { waitFor } from '../support/wait.js';
import { createWlcgBench, type WlcgBench } from '../support/wlcg-bench.js';

const lifetime = { diskLifetime: 'PT36H', targetedMetadata: { 'fake-site': { activity: 'restores' } } };
const can = { release: true, ids: true, until: false };

describeStagingLibrary('wlcg (dCache)', () => createWlcgBench('dcache', { tls: true, settings: lifetime }), {
  ...can,
  until: true,
});
describeStagingLibrary('wlcg (EOS and CTA)', () => createWlcgBench('eos', { settings: lifetime }), can);
describeStagingLibrary('wlcg (StoRM Tape)', () => createWlcgBench('storm'), { ...can, release: false });

async function open(...options: Parameters<typeof createWlcgBench>): Promise<WlcgBench> {
  const bench = await createWlcgBench(...options);
  onTestFinished(() => bench.close());
  return bench;
}

const countBy = (calls: readonly string[]) =>
  Object.fromEntries([...new Set(calls)].sort().map((kind) => [kind, calls.filter((each) => each === kind).length]));

const pathsOf = (count: number) => Array.from({ length: count }, (_, index) => `/many/${index}`);

/** Stages, polls and releases files as an engine does, in calls of the largest size that the library accepts. */
async function restore(bench: WlcgBench, library: StagingLibrary, paths: readonly string[]): Promise<void> {
  const files = await putFiles(bench, paths);
  const demands = [];
  while (files.length > 0) {
    const part = files.splice(0, library.limits.stage);
    const { id, known } = await library.stage(part, quiet());
    expect(known).toEqual([]);
    demands.push({ id, files: part });
  }
  await bench.arrive(paths);
  for (const demand of demands) {
    const states = await library.poll(demand, quiet());
    expect(new Set(states.map(({ state }) => state))).toEqual(new Set(['ready']));
    expect(states.length).toBe(demand.files.length);
  }
  for (const demand of demands) expect(await library.release(demand, quiet())).toEqual([]);
}

test.each(['dcache', 'eos'] as const)('10,000 files on %s take about 100 calls', async (dialect) => {
  const bench = await open(dialect);
  await restore(bench, bench.library, pathsOf(10_000));
  expect(countBy(bench.server.calls)).toEqual({ delete: 20, discovery: 1, poll: 41, release: 20, stage: 20 });
  expect(bench.server.storage.requests.size).toBe(0);
  expect(await bench.isStaged('/many/7')).toBe(false);
});

test('files that are already on disk there are ready at once', async () => {
  const bench = await open('dcache');
  const files = await putFiles(bench, pathsOf(3));
  await makeReady(bench, files.slice(0, 2));
  const { known } = await bench.reopen().stage(files, quiet());
  expect(known.map(({ path, state }) => `${path} ${state}`)).toEqual(['/many/0 ready', '/many/1 ready']);
  bench.server.onCall = (kind) => (kind === 'poll' ? { status: 500, body: {} } : undefined);
  expect(await bench.reopen().stage(files, quiet())).toEqual({ id: expect.any(String), known: [] });
});

test('a request whose files are released together is deleted', async () => {
  const bench = await open('dcache');
  const files = await putFiles(bench, pathsOf(20));
  const { demand } = await makeReady(bench, files);
  bench.server.calls.length = 0;
  await bench.library.release(demand, quiet());
  expect(countBy(bench.server.calls)).toEqual({ delete: 1, poll: 1, release: 1 });
  expect(bench.server.storage.requests.size).toBe(0);
});

test('a request with unreleased files is not deleted: another process may need them', async () => {
  const bench = await open('eos');
  const files = await putFiles(bench, pathsOf(4));
  const { demand } = await ask(bench.library, files);
  await bench.arrive(['/many/1', '/many/2']);
  await bench.library.release({ ...demand, files: files.slice(0, 2) }, quiet());
  await bench.reopen().release({ ...demand, files: files.slice(2, 3) }, quiet());
  expect(bench.server.storage.requests.size).toBe(1);
  await bench.arrive(pathsOf(4));
  expect(await Promise.all(pathsOf(4).map((path) => bench.isStaged(path)))).toEqual([false, false, false, true]);
  await bench.library.release({ ...demand, files: files.slice(3) }, quiet());
  expect(await bench.isStaged('/many/3')).toBe(false);
});

test('a server that refuses large calls gets smaller ones', async () => {
  const bench = await open('dcache');
  const { dialect, storage } = bench.server;
  dialect.maxFiles = 70;
  await restore(bench, bench.library, pathsOf(300));
  expect(bench.library.limits).toEqual({ stage: 38, poll: 500, release: 500 });
  expect(storage.requests.size).toBe(0);
  expect(await Promise.all(pathsOf(300).map((path) => bench.isStaged(path)))).not.toContain(true);
});

test('if a server refuses a call because of one path, that path fails and the others are staged', async () => {
  const bench = await open('dcache');
  const paths = [...pathsOf(40), '/refused'];
  const files = await putFiles(bench, paths);
  bench.server.onCall = (kind, given) =>
    kind === 'stage' && given.includes('/refused')
      ? bench.server.dialect.problem(400, 'Bad Request', 'an odd path')
      : undefined;
  const { id, known } = await bench.library.stage(files, quiet());
  expect(known).toMatchObject([{ path: '/refused', state: 'failed', error: { errorClass: 'PERMANENT' } }]);
  await bench.arrive(paths);
  const states = await bench.library.poll({ id, files: files.slice(0, 40) }, quiet());
  expect(states.map(({ state }) => state)).toEqual(pathsOf(40).map(() => 'ready'));
});

test('a server that refuses everything gets few calls, and what it accepted of a call is deleted', async () => {
  const bench = await open('eos');
  const files = await putFiles(bench, pathsOf(500));
  bench.server.onCall = (kind, given) => (kind === 'stage' && given.length > 0 ? { status: 400 } : undefined);
  await expectFailure(bench.library.stage(files, quiet()), LibraryError, 'TRANSIENT', 'answers 400');
  expect(bench.server.calls.length).toBeLessThan(40);
  bench.server.onCall = (kind, given) => {
    if (kind !== 'stage') return undefined;
    if (given.length > 250) return { status: 413 };
    return given.includes('/many/0') ? undefined : { status: 500 };
  };
  await errorOf(bench.open().stage(files, quiet()));
  expect(bench.server.storage.requests.size).toBe(0);
});

test('paths without a locality in an answer are asked for again while answers contain any', async () => {
  const bench = await open('storm');
  const files = await putFiles(bench, pathsOf(30));
  const { demand } = await makeReady(bench, files);
  await bench.forget();
  bench.server.calls.length = 0;
  bench.server.onCall = (kind, given) => {
    if (kind !== 'archiveinfo') return undefined;
    return {
      status: 200,
      body: given
        .slice(0, 20)
        .filter((path) => path !== '/many/3')
        .map((path) => ({ path, locality: 'DISK' })),
    };
  };
  const states = await bench.library.poll(demand, quiet());
  expect(states.filter(({ state }) => state === 'ready').length).toBe(29);
  expect(states.filter(({ path }) => path === '/many/3')).toEqual([{ path: '/many/3', state: 'forgotten' }]);
  expect(countBy(bench.server.calls).archiveinfo).toBe(3);
});

test('a tape API that has moved is discovered again', async () => {
  const bench = await open('eos');
  const files = await putFiles(bench, ['/a']);
  await makeReady(bench, files);
  bench.server.moveBase('/api/v1/elsewhere');
  await makeReady(bench, files);
  expect(countBy(bench.server.calls).discovery).toBe(2);
});

test.each<[string, object, RegExp]>([
  [
    'no version that is known',
    { endpoints: [{ uri: '/api', version: 'v2' }] },
    /reports versions "v2" of the tape API, but Tapegate supports v1$/,
  ],
  ['no endpoints', { endpoints: null }, /must return a list of tape API endpoints/],
  ['a URI that is none', { endpoints: [{ uri: 'http://[', version: 'v1' }] }, /which is not a URL$/],
  [
    'another origin',
    { endpoints: [{ uri: 'https://other.example.org/api', version: 'v1' }] },
    /receives the token only if tokenOrigins contains "https:\/\/other.example.org"$/,
  ],
])('discovery that returns %s fails the call', async (_what, body, message) => {
  const bench = await open('eos');
  bench.server.onDiscovery = () => ({ status: 200, body });
  expect(await errorOf(bench.library.stage([staged('/a')], quiet()))).toMatchObject({
    message: expect.stringMatching(message),
  });
  expect(bench.server.calls).toEqual(['discovery']);
});

test.each(['v1', 'V1', '1', 'v1.0', '1.2'])('discovery accepts the version %s', async (version) => {
  const bench = await open('dcache');
  const uri = `${bench.server.dialect.base}/`;
  bench.server.onDiscovery = () => ({
    status: 200,
    body: {
      endpoints: [
        { uri: '/old', version: 'v0' },
        { uri, version },
      ],
    },
  });
  expect((await bench.library.stage([staged('/a')], quiet())).id).toEqual(expect.any(String));
});

test('each call reads the token from its file, which must be private', async () => {
  const bench = await open('eos');
  const files = await putFiles(bench, ['/a']);
  const { tokenFile } = bench.files;
  await makeReady(bench, files);
  bench.server.token = 'a.newer.token';
  await expectFailure(bench.library.stage(files, quiet()), LibraryError, 'POLICY', '401');
  writeFileSync(tokenFile, 'a.newer.token');
  await makeReady(bench, files);
  for (const [text, problem] of [
    ['', 'is empty'],
    ['two words', 'contains spaces or invalid characters'],
  ]) {
    writeFileSync(tokenFile, text ?? '');
    const error = (await errorOf(bench.library.stage(files, quiet()))) as Error;
    expect(error.message).toBe(`the token file ${tokenFile} ${problem}; it must contain one token`);
  }
  chmodSync(tokenFile, 0o644);
  const message = `the token file ${tokenFile} cannot be used: every user of this host can read or change the file (mode 0644): run chmod o= on the file`;
  await expectFailure(bench.library.stage(files, quiet()), LibraryError, 'POLICY', message);
});

test('a token that a refusal repeats is not in the error message', async () => {
  const bench = await open('dcache');
  const files = await putFiles(bench, pathsOf(1));
  const detail = 'invalid token: a.bearer.token, get a new one';
  for (const special of [{ body: { detail } }, { headers: { title: detail } }]) {
    bench.server.onCall = () => ({ status: 403, ...special });
    const message = expect.stringMatching(/answers 403: invalid token: …, get a new one$/);
    expect(await errorOf(bench.library.stage(files, quiet()))).toMatchObject({ message });
  }
});

test("a token is sent only to the hosts that the host's administrator lists, regardless of the settings", async () => {
  const bench = await open('eos');
  const hosts = `${bench.files.tokenFile}.hosts`;
  const stage = () => bench.library.stage([staged('/a')], quiet());
  writeFileSync(hosts, 'element.example.org\n');
  const { host } = new URL(bench.server.origin);
  const says = `${hosts} does not list "${host}", so ${bench.files.tokenFile} is not sent to it`;
  await expectFailure(stage(), LibraryError, 'POLICY', says);
  rmSync(hosts);
  await expectFailure(
    stage(),
    LibraryError,
    'POLICY',
    `cannot read ${hosts}, the list of hosts that may receive ${bench.files.tokenFile}`,
  );
  expect(bench.server.calls).toEqual([]);
  writeFileSync(hosts, `element.example.org\n${host}\n`);
  expect((await stage()).id).toEqual(expect.any(String));
});

test('a server with an untrusted certificate gets no call', async () => {
  const bench = await open('eos', { tls: true, settings: { caFile: undefined } });
  const untrusted = bench.library.stage([staged('/a')], quiet());
  await expectFailure(untrusted, LibraryError, 'POLICY', /cannot be reached: self-signed certificate\b/);
  expect(bench.server.calls).toEqual([]);
  const missing = bench.open({ caFile: 'nowhere.pem' }).stage([staged('/a')], quiet());
  const says = /^the certificates \(.*secrets\/nowhere.pem\) cannot be used: ENOENT/;
  await expectFailure(missing, LibraryError, 'POLICY', says);
});

test('a changed file of certificates is read again for the next connection', async () => {
  const bench = await open('eos', { tls: true });
  const { caFile } = bench.files;
  const files = await putFiles(bench, ['/a']);
  const right = readFileSync(caFile, 'utf8');
  await makeReady(bench, files);
  writeFileSync(caFile, makeCertificate().cert);
  bench.server.closeConnections();
  await waitFor('the new file to count', async () => {
    const error: unknown = await bench.library.stage(files, quiet()).catch((thrown) => thrown);
    return error instanceof LibraryError && error.errorClass === 'POLICY' && error.message.includes('self-signed');
  });
  writeFileSync(caFile, `${right}\n`);
  await makeReady(bench, files);
  expect(await readStaged(bench.library, staged('/a'))).toEqual(Buffer.from('the bytes of /a'));
});

test('a client certificate replaces the token, and its file must be private', async () => {
  const own = makeCertificate();
  const certFile = addSecret(`${own.cert}${own.key}`);
  const settings = { certFile, tokenFile: undefined };
  const bench = await open('dcache', { tls: true, settings, clients: own.cert });
  const files = await putFiles(bench, ['/a']);
  await makeReady(bench, files);
  expect(await readStaged(bench.library, staged('/a'))).toEqual(Buffer.from('the bytes of /a'));
  const anonymous = bench.open({ certFile: undefined });
  expect(await errorOf(anonymous.stage(files, quiet()))).toMatchObject({ errorClass: 'POLICY' });
  chmodSync(secretFile(certFile), 0o644);
  const says = `cannot be used: every user of this host can read ${secretFile(certFile)}: run chmod o= on the key file`;
  await expectFailure(bench.open().stage(files, quiet()), LibraryError, 'POLICY', says);
});

test('paths below pathPrefix are looked for below remotePathPrefix, and all others are refused', async () => {
  const bench = await open('dcache', { settings: { pathPrefix: '/archive', remotePathPrefix: '/pnfs/data/' } });
  await bench.put('/pnfs/data/a/b', Buffer.from('bytes'));
  const files = ['/archive/a/b', '/archived/c', '/archive', '/archive/../d', '/archive/\ud800'].map((path) =>
    staged(path, 5),
  );
  const { id, known } = await bench.library.stage(files, quiet());
  expect(known.map(({ path, state }) => `${path} ${state}`)).toEqual(
    files.slice(1).map(({ path }) => `${path} failed`),
  );
  await bench.arrive(['/pnfs/data/a/b']);
  expect(await bench.library.poll({ id, files: files.slice(0, 1) }, quiet())).toMatchObject([
    { path: '/archive/a/b', state: 'ready' },
  ]);
  expect((await readStaged(bench.library, staged('/archive/a/b'))).toString()).toBe('bytes');
  const says = '"/archived/c" is not below the pathPrefix of the library, "/archive"';
  await expectFailure(readStaged(bench.library, staged('/archived/c')), TapeError, 'PERMANENT', says);
  await bench.library.release({ id, files: files.slice(0, 1) }, quiet());
  expect(bench.server.storage.requests.size).toBe(0);
});
