/** The engine verifies tape copies by reading them back. */
import { expect, test } from 'vitest';
import { TapeError } from '../../src/core/errors.js';
import { importRows } from '../../src/domain/import/import.js';
import { readMoves, readStage } from '../support/engine-watch.js';
import { addFiles, addTaped, buildRow } from '../support/factories.js';
import { askData } from '../support/graphql.js';
import { useMemorySite } from '../support/memory-site.js';
import { runCli } from '../support/process.js';
import { waitForState } from '../support/request-view.js';
import { readSuspensions, resume } from '../support/suspend.js';
import { createGate, waitFor } from '../support/wait.js';

const { app, library, clock, ask, query } = useMemorySite({ drives: 1, engine: { verifyMs: 100, idleMs: 100 } });
const read = library.onRead;

interface FileView {
  stage: string;
  verifiedAt: string | null;
  verificationFailure: { attempts: number; errorClass: string; error: string; nextTryAt: string | null } | null;
}

async function viewFile(path: string): Promise<FileView> {
  const query = `query ($path: String!) { tapeFile(path: $path) {
    stage verifiedAt verificationFailure { attempts errorClass error nextTryAt } } }`;
  return (await askData<{ tapeFile: FileView }>(app, query, { path })).tapeFile;
}

const waitForFailure = (path: string) =>
  waitFor(`a failure of ${path}`, async () => (await viewFile(path)).verificationFailure ?? undefined);

const waitForConfirmation = (path: string) =>
  waitFor(`the confirmation of ${path}`, async () => (await readStage(app, path)) === 'D');

/** Puts files on tape whose copies have never been verified. */
async function addUnconfirmed(files: { path: string; volume: string; bytes?: Uint8Array }[]): Promise<void> {
  await addTaped(
    app.ctx,
    library,
    files.map((file) => ({ ...file, stage: 'UNVERIFIED' as const, verified: null })),
  );
}

test('tape copies with the right checksum make their files ONDISK, with the time, in one mount', async () => {
  const files = Array.from({ length: 105 }, (_, n) => `/good/${n}`); // more files than the engine selects at once
  await addUnconfirmed(files.map((path) => ({ path, volume: 'GOOD' })));
  await waitFor('the confirmations', async () => (await readMoves(app, '/good/')).length === files.length);
  const moves = new Map((await readMoves(app, '/good/')).map(({ path, move }) => [path, move]));
  expect(moves).toEqual(new Map(files.map((path) => [path, 'UD'])));
  const confirmed = { stage: 'ONDISK', verifiedAt: expect.any(String), verificationFailure: null };
  expect(await viewFile('/good/104')).toEqual(confirmed);
  expect(library.log.filter(({ what, volume }) => what === 'mount' && volume === 'GOOD')).toHaveLength(1);
});

test('a wrong checksum is reported with both values and retried a few times, and again when an operator asks', async () => {
  const wrong = new TextEncoder().encode('other bytes');
  library.onRead = async (volume, position, bytes) => (volume === 'WRONG' && position === 1n ? wrong : bytes);
  await addUnconfirmed([
    { path: '/wrong/1', volume: 'WRONG', bytes: new TextEncoder().encode('right bytes') },
    { path: '/wrong/2', volume: 'WRONG' },
  ]);
  expect(await waitForFailure('/wrong/1')).toEqual({
    attempts: 1,
    errorClass: 'MEDIA',
    error: expect.stringMatching(
      /^the checksum of the tape copy is sha256:[0-9a-f]{64}, but the catalogue says sha256:[0-9a-f]{64}$/,
    ),
    nextTryAt: expect.any(String),
  });
  await waitForConfirmation('/wrong/2'); // a bad copy delays no other file
  await query('UPDATE verification SET attempts = 2, not_before = NULL');
  const env = { TAPEGATE_URL: app.url, TAPEGATE_TOKEN: app.token };
  const { stdout } = await runCli(['verify', '/wrong'], { env });
  expect(stdout).toMatch(/^\/wrong\/1 +WRONG +1 +2 +none +the checksum of the tape copy is sha256:/m);
  library.onRead = read;
  expect(await runCli(['verify', '/wrong', '--again'], { env })).toMatchObject({
    stdout: '1 file will be verified again\n',
  });
  await waitForConfirmation('/wrong/1');
  expect((await runCli(['verify'], { env })).stdout).toBe('no verification has failed\n');
});

test('an error of the library is reported with its class, until an import corrects the file', async () => {
  library.onRead = async (volume, position) => {
    if (volume === 'GONE' && position === 1n) throw new TapeError('PERMANENT', 'there is nothing');
  };
  await addUnconfirmed(['/gone/1', '/gone/2'].map((path) => ({ path, volume: 'GONE' })));
  expect(await waitForFailure('/gone/1')).toEqual({
    attempts: 1,
    errorClass: 'PERMANENT',
    error: 'there is nothing',
    nextTryAt: null,
  });
  const [{ checksum, size } = { checksum: '', size: 0n }] = await query<{ checksum: string; size: bigint }>(
    `SELECT checksum, size FROM tape_file WHERE path = '/gone/2'`,
  );
  const place = { path: '/gone/1', volume: 'GONE', position: 2n, stage: 'UNVERIFIED' as const, verified: null };
  await importRows(app.ctx, [buildRow({ ...place, checksum, size })]);
  await waitForConfirmation('/gone/1');
});

test('"too many open files" is no try of a tape copy', async () => {
  library.onRead = async (volume, position, bytes) => {
    const error = Object.assign(new Error('EMFILE: too many open files'), { code: 'EMFILE' });
    if (volume === 'OPEN') throw new TapeError('TRANSIENT', 'it cannot be read', { cause: error });
    return await read(volume, position, bytes);
  };
  await addUnconfirmed([{ path: '/open/1', volume: 'OPEN' }]);
  const failure = await waitForFailure('/open/1');
  expect(failure).toMatchObject({ attempts: 0, errorClass: 'TRANSIENT', nextTryAt: expect.any(String) });
  library.onRead = read;
  clock.advance(600);
  await waitForConfirmation('/open/1');
});

test('a failed mount is no try of a tape copy: its volume is mounted again, and suspended after several failures', async () => {
  library.onMount = async (volume) => {
    if (volume === 'AWAY') throw new TapeError('MEDIA', 'it is in no slot');
  };
  const files = ['/away/1', '/away/2'];
  await addUnconfirmed([...files.map((path) => ({ path, volume: 'AWAY' })), { path: '/beside', volume: 'BESIDE' }]);
  await waitForConfirmation('/beside');
  const suspension = await waitFor('the suspension', async () => {
    clock.advance(5);
    return (await readSuspensions(app)).find(({ name }) => name === 'AWAY');
  });
  expect(suspension.reason).toContain('mounting failed 3 times: it is in no slot');
  for (const path of files)
    expect(await viewFile(path)).toMatchObject({ stage: 'UNVERIFIED', verificationFailure: null });
  library.onMount = async () => {};
  await resume(app, 'VOLUME', 'AWAY');
  for (const path of files) await waitForConfirmation(path);
});

test('files that were confirmed before, or lack a checksum or a volume, are not read', async () => {
  const rest = { volume: 'GOOD', stage: 'UNVERIFIED' as const };
  await addFiles(app.ctx, [
    { path: '/left/changed', checksum: `sha256:${'0'.repeat(64)}`, ...rest },
    { path: '/left/plain', checksum: null, verified: null, ...rest },
    { path: '/left/lost', checksum: `sha256:${'0'.repeat(64)}`, verified: null, ...rest, volume: null, position: null },
  ]);
  await addUnconfirmed([{ path: '/left/last', volume: 'LAST' }]);
  await waitForConfirmation('/left/last');
  for (const path of ['/left/changed', '/left/plain', '/left/lost']) {
    expect(await viewFile(path)).toMatchObject({ stage: 'UNVERIFIED', verificationFailure: null });
  }
});

test('recalls go before confirmations: the drive leaves the volume after the current file', async () => {
  const gate = createGate();
  const begun: string[] = [];
  library.onRead = async (volume) => {
    begun.push(volume);
    if (volume === 'SLOW' && begun.length === 1) await gate.opened;
  };
  const files = ['/slow/1', '/slow/2', '/slow/3'];
  await addUnconfirmed(files.map((path) => ({ path, volume: 'SLOW' })));
  await addTaped(app.ctx, library, [{ path: '/urgent', volume: 'URGENT' }]);
  await waitFor('the first one', async () => begun.length === 1);
  const id = await ask('/urgent');
  gate.open();
  await waitForState(app, id, 'COMPLETED');
  expect(begun.slice(0, 2)).toEqual(['SLOW', 'URGENT']);
  for (const path of files) await waitForConfirmation(path);
});
