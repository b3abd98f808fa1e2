/** Tape copies are confirmed by reading them back. */
import { afterAll, beforeAll, expect, test } from 'vitest';
import { TapeError } from '../../src/errors.js';
import { importRows } from '../../src/operations/catalogue/import.js';
import { createMemoryBackend } from '../../src/tape/memory.js';
import { startApp, type TestApp } from '../support/app.js';
import { findIllegalMoves, readMoves, readStage } from '../support/engine-watch.js';
import { addFiles, addQuota, addTaped, buildRow } from '../support/factories.js';
import { askData } from '../support/graphql.js';
import { cleanUp, runCli } from '../support/process.js';
import { waitForState } from '../support/request-view.js';
import { makeRequest } from '../support/rest.js';
import { createGate, waitFor } from '../support/wait.js';

let app: TestApp;
const backend = createMemoryBackend();

beforeAll(async () => {
  app = await startApp({ backend, config: { drives: 1 }, engine: { verifyMs: 300 } });
  await addQuota(app.ctx, 'ann', 10n ** 9n);
});
afterAll(async () => {
  expect(await findIllegalMoves(app)).toEqual([]);
  await cleanUp();
  await app.close();
});

interface FileView {
  stage: string;
  verified: string | null;
  verification: { attempts: number; errorClass: string; error: string; nextTry: string | null } | null;
}

async function viewFile(path: string): Promise<FileView> {
  const { tapeFile } = await askData<{ tapeFile: FileView }>(
    app,
    `query ($path: String!) { tapeFile(path: $path) {
      stage verified verification { attempts errorClass error nextTry } } }`,
    { path },
  );
  return tapeFile;
}

/** Files on tape that have never been confirmed. */
async function addUnconfirmed(files: { path: string; volume: string; bytes?: Uint8Array }[]): Promise<void> {
  await addTaped(
    app.ctx,
    backend,
    files.map((file) => ({ ...file, stage: 'UNVERIFIED' as const, verified: null })),
  );
}

test('a copy with the bytes of the catalogue makes its file ONDISK, and dates it', async () => {
  await addUnconfirmed([
    { path: '/good/1', volume: 'GOOD' },
    { path: '/good/2', volume: 'GOOD' },
  ]);
  for (const path of ['/good/1', '/good/2']) {
    await waitFor('the confirmation', async () => (await readStage(app, path)) === 'D');
    const { verified, verification } = await viewFile(path);
    expect({ isDated: verified !== null, verification }).toEqual({ isDated: true, verification: null });
    expect(await readMoves(app, path)).toEqual([{ path, move: 'UD' }]);
  }
  expect(backend.log.filter(({ what, volume }) => what === 'mount' && volume === 'GOOD')).toHaveLength(1);
});

test('another checksum is shown with both values, tried a few times, and again when somebody wants it', async () => {
  const wrong = new TextEncoder().encode('other bytes');
  backend.onRead = async (volume, position, bytes) => (volume === 'WRONG' && position === 1n ? wrong : bytes);
  await addUnconfirmed([
    { path: '/wrong/1', volume: 'WRONG', bytes: new TextEncoder().encode('right bytes') },
    { path: '/wrong/2', volume: 'WRONG' },
  ]);
  const seen = await waitFor('the mismatch', async () => (await viewFile('/wrong/1')).verification ?? undefined);
  expect(seen).toMatchObject({ errorClass: 'MEDIA', attempts: 1 });
  expect(seen.nextTry).not.toBeNull();
  expect(seen.error).toMatch(/^the tape copy is sha256:[0-9a-f]{64}, and the catalogue says sha256:[0-9a-f]{64}$/);
  // a bad file holds up no other
  await waitFor('the other file', async () => (await readStage(app, '/wrong/2')) === 'D');

  await app.ctx.db.pool.query('UPDATE verification SET attempts = 2, not_before = NULL');
  const env = { TAPEGATE_URL: app.url, TAPEGATE_TOKEN: app.token };
  const { stdout } = await runCli(['verify', '/wrong'], { env });
  expect(stdout).toMatch(/^\/wrong\/1 +WRONG +1 +2 +none +the tape copy is sha256:/m);
  backend.onRead = async (_volume, _position, bytes) => bytes;
  expect(await runCli(['verify', '/wrong', '--again'], { env })).toMatchObject({ stdout: '1 file is tried again\n' });
  await waitFor('the confirmation', async () => (await readStage(app, '/wrong/1')) === 'D');
  expect((await runCli(['verify'], { env })).stdout).toBe('no tape copy has failed to be confirmed\n');
});

test('an error of the back end is shown with its class; an import that corrects the file ends it', async () => {
  backend.onRead = async (volume, position, bytes) => {
    if (volume === 'GONE' && position === 1n) throw new TapeError('PERMANENT', 'there is nothing');
    return bytes;
  };
  await addUnconfirmed([
    { path: '/gone/1', volume: 'GONE' },
    { path: '/gone/2', volume: 'GONE' },
  ]);
  await waitFor('the error', async () => (await viewFile('/gone/1')).verification !== null);
  expect((await viewFile('/gone/1')).verification).toEqual({
    attempts: 1,
    errorClass: 'PERMANENT',
    error: 'there is nothing',
    nextTry: null,
  });
  const { rows } = await app.ctx.db.pool.query<{ checksum: string; size: bigint }>(
    `SELECT checksum, size FROM tape_file WHERE path = '/gone/2'`,
  );
  const { checksum = '', size = 0n } = rows[0] ?? {};
  const place = { path: '/gone/1', volume: 'GONE', position: 2n, stage: 'UNVERIFIED' as const, verified: null };
  await importRows(app.ctx, [buildRow({ ...place, checksum, size })]);
  await waitFor('the confirmation', async () => (await readStage(app, '/gone/1')) === 'D');
});

test('that too many files are open is no try of a copy', async () => {
  const read = backend.onRead;
  backend.onRead = async (volume, position, bytes) => {
    const error = Object.assign(new Error('EMFILE: too many open files'), { code: 'EMFILE' });
    if (volume === 'OPEN') throw new TapeError('TRANSIENT', 'it cannot be read', { cause: error });
    return await read(volume, position, bytes);
  };
  await addUnconfirmed([{ path: '/open/1', volume: 'OPEN' }]);
  const failure = await waitFor('the failure', async () => (await viewFile('/open/1')).verification ?? undefined);
  backend.onRead = read;
  expect(failure).toMatchObject({ attempts: 0, errorClass: 'TRANSIENT', nextTry: expect.any(String) });
  await waitFor('the confirmation', async () => (await readStage(app, '/open/1')) === 'D');
});

test('what was confirmed before, has no checksum or no place is left as it is', async () => {
  const rest = { volume: 'GOOD', stage: 'UNVERIFIED' as const };
  await addFiles(app.ctx, [
    { path: '/left/changed', checksum: `sha256:${'0'.repeat(64)}`, ...rest },
    { path: '/left/plain', checksum: null, verified: null, ...rest },
    { path: '/left/lost', checksum: `sha256:${'0'.repeat(64)}`, verified: null, ...rest, volume: null, position: null },
  ]);
  await addUnconfirmed([{ path: '/left/last', volume: 'LAST' }]);
  await waitFor('a later one', async () => (await readStage(app, '/left/last')) === 'D');
  for (const path of ['/left/changed', '/left/plain', '/left/lost']) {
    expect(await viewFile(path)).toMatchObject({ stage: 'UNVERIFIED', verification: null });
  }
});

test('a recall goes first: the drive leaves off after the file in hand', async () => {
  const gate = createGate();
  const begun: string[] = [];
  backend.onRead = async (volume, _position, bytes) => {
    begun.push(volume);
    if (volume === 'SLOW' && begun.length === 1) await gate.opened;
    return bytes;
  };
  await addUnconfirmed([1, 2, 3].map((n) => ({ path: `/slow/${n}`, volume: 'SLOW' })));
  await addTaped(app.ctx, backend, [{ path: '/urgent', volume: 'URGENT' }]);
  await waitFor('the first one', async () => begun.length === 1);
  const id = await makeRequest(app, { quota: 'ann', files: ['/urgent'] });
  gate.open();
  await waitForState(app, id, 'COMPLETED');
  expect(begun.slice(0, 2)).toEqual(['SLOW', 'URGENT']);
  for (const n of [1, 2, 3]) {
    await waitFor('the rest', async () => (await readStage(app, `/slow/${n}`)) === 'D');
  }
});
