/** Volumes that are moved or retired during recalls of their files. */
import { randomBytes } from 'node:crypto';
import { existsSync } from 'node:fs';
import path from 'node:path';
import { afterAll, expect, test } from 'vitest';
import { retireVolume } from '../../src/domain/catalogue-changes/retirements.js';
import { moveVolume } from '../../src/domain/catalogue-changes/volume-moves.js';
import { suspend } from '../../src/domain/health/suspensions.js';
import { withEngine } from '../support/engine-by-hand.js';
import { readRestored } from '../support/engine-watch.js';
import { addFiles, addTaped, checksumOf, putOnTape } from '../support/factories.js';
import { useMemorySite } from '../support/memory-site.js';
import { cancel } from '../support/mutations.js';
import { cleanUp, makeDataDir, runCli } from '../support/process.js';
import { viewRequest, waitForState } from '../support/request-view.js';
import { makeRequest } from '../support/rest.js';
import { readTries } from '../support/suspend.js';
import { placesBelow } from '../support/volumes.js';
import { createGate, waitFor } from '../support/wait.js';

const { app, library, countReads: readsOf } = useMemorySite({ isIdle: true });
afterAll(cleanUp);

/** Copies a volume as library tools do: the same bytes at the same positions. */
function copyCartridge(from: string, to: string): void {
  for (const [position, bytes] of library.volumes.get(from) ?? []) putOnTape(library, { volume: to, position, bytes });
}

function expectRestored(contents: Map<string, Uint8Array>): void {
  for (const [file, bytes] of contents) expect([file, readRestored(app, file)]).toEqual([file, Buffer.from(bytes)]);
}

/** Blocks reads of a volume until the gate opens. */
function stopReads(volume: string) {
  const gate = createGate();
  library.onRead = async (of) => {
    if (of === volume) await gate.opened;
  };
  return gate;
}

test('files of a moved volume are read from the new one, and the file that is being read is restored', async () => {
  const contents = await addTaped(
    app.ctx,
    library,
    Array.from({ length: 400 }, (_, n) => ({ path: `/moved/${1000 + n}`, volume: 'A1', size: 10 })),
  );
  const gate = stopReads('A1');
  const id = await makeRequest(app, { quota: 'alice', patterns: '/moved/' });
  await withEngine(app, library, async () => {
    await waitFor('a read', async () => readsOf('A1') > 0);
    copyCartridge('A1', 'B1');
    expect(await moveVolume(app.ctx, { from: 'A1', to: 'B1' })).toMatchObject({ files: 400, requests: 1 });
    gate.open();
    await waitForState(app, id, 'COMPLETED');
  });
  expectRestored(contents);
  // the checksums are known, so the restored copies stay when the volume moves again
  copyCartridge('B1', 'C1');
  await moveVolume(app.ctx, { from: 'B1', to: 'C1' });
  expect(await viewRequest(app, id)).toMatchObject({ state: 'COMPLETED', filesOnDisk: 400 });
  expectRestored(contents);
  expect(readsOf('A1') + readsOf('B1')).toBe(400);
  expect(readsOf('B1')).toBeGreaterThan(0);
});

test('a file without a checksum that is being read is read again from the new volume', async () => {
  const bytes = randomBytes(1000);
  putOnTape(library, { volume: 'A2', position: 1n, bytes });
  await addFiles(app.ctx, [{ path: '/unchecked/1', volume: 'A2', size: 1000n }]);
  const gate = stopReads('A2');
  const id = await makeRequest(app, { quota: 'alice', files: ['/unchecked/1'] });
  await withEngine(app, library, async () => {
    await waitFor('a read', async () => readsOf('A2') > 0);
    copyCartridge('A2', 'B2');
    await moveVolume(app.ctx, { from: 'A2', to: 'B2' });
    gate.open();
    await waitForState(app, id, 'COMPLETED');
  });
  expect(readsOf('B2')).toBe(1);
  expectRestored(new Map([['/unchecked/1', bytes]]));
});

test('a move keeps restored copies, and their checksum detects a damaged new cartridge', async () => {
  const bytes = randomBytes(1000);
  putOnTape(library, { volume: 'A3', position: 1n, bytes });
  await addFiles(app.ctx, [{ path: '/unchecked/2', volume: 'A3', size: 1000n }]);
  const id = await makeRequest(app, { quota: 'alice', files: ['/unchecked/2'] });
  await withEngine(app, library, () => waitForState(app, id, 'COMPLETED'));
  putOnTape(library, { volume: 'B3', position: 1n, bytes: randomBytes(1000) });
  await moveVolume(app.ctx, { from: 'A3', to: 'B3' });
  await withEngine(app, library, async () => {
    expect((await viewRequest(app, id)).files).toMatchObject([{ state: 'ON_DISK' }]);
    expectRestored(new Map([['/unchecked/2', bytes]]));
    await cancel(app, id);
    await waitFor('the copy to be removed', async () => !existsSync(path.join(app.restoreDir, '/unchecked/2')));
    const again = await makeRequest(app, { quota: 'alice', files: ['/unchecked/2'] });
    await waitFor('the read of the new cartridge', async () => readsOf('B3') > 0);
    await waitFor('the error', async () =>
      (await readTries(app, again))['/unchecked/2']?.lastError?.includes('the first restore of the file computed'),
    );
  });
});

/** Adds files whose bytes are on both volumes. */
async function addTwice(
  names: readonly string[],
  volume: string,
  copyVolume: string,
): Promise<Map<string, Uint8Array>> {
  const files = names.map((file, n) => ({ path: file, position: BigInt(n + 1), bytes: randomBytes(1000) }));
  for (const { position, bytes } of files) {
    putOnTape(library, { volume, position, bytes });
    putOnTape(library, { volume: copyVolume, position: position + 100n, bytes });
  }
  await addFiles(
    app.ctx,
    files.map(({ path: file, position, bytes }) => ({
      ...{ path: file, volume, position, checksum: checksumOf(bytes) },
      ...{ copyVolume, copyPosition: position + 100n },
    })),
  );
  return new Map(files.map((file) => [file.path, file.bytes]));
}

test('a volume that is read is retired only once it is suspended, and waiting files are read from their other copies', async () => {
  const names = Array.from({ length: 30 }, (_, n) => `/leaving/${100 + n}`);
  const contents = await addTwice(names, 'A4', 'B4');
  const gate = stopReads('A4');
  const id = await makeRequest(app, { quota: 'alice', patterns: '/leaving/' });
  await withEngine(app, library, async () => {
    await waitFor('a read', async () => readsOf('A4') > 0);
    await expect(retireVolume(app.ctx, { name: 'A4' })).rejects.toThrow(
      /^volume "A4" is in use: drive-\d has it mounted and reads \d+ files? from it; suspend or drain the volume, and/,
    );
    await suspend(app.ctx, { kind: 'VOLUME', name: 'A4', mode: 'IMMEDIATE', reason: 'it leaves' });
    gate.open();
    await waitFor('the volume to be free', async () => {
      const { rows } = await app.ctx.db.pool.query(
        `SELECT FROM volume v WHERE v.name = 'A4' AND (EXISTS (SELECT FROM drive d WHERE d.volume_id = v.id)
           OR EXISTS (SELECT FROM recall c WHERE c.volume_id = v.id AND c.state = 'RUNNING'))`,
      );
      return rows.length === 0;
    });
    expect(await retireVolume(app.ctx, { name: 'A4', reason: 'worn out' })).toMatchObject({ files: 30, elsewhere: 30 });
    const before = readsOf('A4');
    await waitForState(app, id, 'COMPLETED');
    expect(readsOf('A4')).toBe(before);
  });
  expectRestored(contents);
  expect((await placesBelow(app, '/leaving/')).filter((place) => place.includes('A4'))).toEqual([]);
});

test('requests that are made while a volume moves get every file, with its bytes', async () => {
  const names = Array.from({ length: 60 }, (_, n) => `/race/${100 + n}`);
  const contents = await addTwice(names, 'A6', 'B6');
  copyCartridge('A6', 'C6');
  await withEngine(app, library, async () => {
    const asked = names.map((file) => makeRequest(app, { quota: 'alice', files: [file] }));
    const moved = moveVolume(app.ctx, { from: 'A6', to: 'C6' });
    const ids = await Promise.all(asked);
    await moved;
    for (const id of ids) await waitForState(app, id, 'COMPLETED');
  });
  expectRestored(contents);
  expect((await placesBelow(app, '/race/')).filter((place) => place.includes(' A6:'))).toEqual([]);
});

const cliAt = (env: Record<string, string>) => {
  return async (...words: string[]): Promise<[number | null, string]> => {
    const { code, stdout, stderr } = await runCli(words, { env });
    return [code, stdout + stderr];
  };
};

const retiredIn = (lines: string, volume: string) =>
  JSON.parse(lines.split('\n').find((line) => line.includes(`"${volume}"`)) ?? '{}');
const isRetired = { retiredAt: expect.stringMatching(/^\d{4}-.*Z$/), retiredReason: 'worn out' };

test('an operator moves, retires, lists and reinstates volumes by command', async () => {
  const dir = makeDataDir();
  const run = cliAt({ TAPEGATE_URL: app.url, TAPEGATE_TOKEN: app.token, DATA_DIR: path.join(dir, 'none'), HOME: dir });
  await addFiles(app.ctx, [
    { path: '/cli/1', volume: 'CLI1' },
    { path: '/cli/2', volume: 'CLI1' },
  ]);
  expect(await run('volume', 'move', 'CLI1', 'CLI2', '--dry-run')).toEqual([0, '2 files, 2.00 kB, would be on CLI2\n']);
  expect(await run('volume', 'move', 'CLI1', 'CLI2')).toEqual([0, '2 files, 2.00 kB, now on CLI2\n']);
  expect(await run('volume', 'move', 'CLI1', 'CLI2')).toEqual([1, 'tapegate: volume "CLI1" contains no files\n']);
  expect(await run('volume', 'move', 'CLI1', 'CLI1')).toEqual([
    2,
    'tapegate: to must differ from the source volume: both are "CLI1"\n',
  ]);
  expect(await run('volume', 'retire', 'CLI2')).toEqual([
    1,
    'tapegate: volume "CLI2" has the only usable copy of 2 files (2.00 kB): "/cli/1", "/cli/2"; withdraw these files together with the volume, or first import their positions on other volumes\n',
  ]);
  expect(await run('volume', 'retire', 'CLI2', '--withdraw', '--dry-run')).toEqual([
    0,
    'volume CLI2 would be retired: 2 files, 2.00 kB\n2 files would be withdrawn\n',
  ]);
  expect(await run('volume', 'retire', 'CLI2', '--withdraw', '--reason', 'worn out')).toEqual([
    0,
    'volume CLI2 is retired: 2 files, 2.00 kB\n2 files are withdrawn\n',
  ]);
  expect(await run('volume', 'retire', 'CLI2')).toEqual([1, 'tapegate: volume "CLI2" is already retired\n']);
  expect((await run('volume', 'list'))[1]).not.toContain('CLI2');
  expect((await run('volume', 'list', '--retired'))[1]).toMatch(/CLI2 .*worn out/);
  expect(retiredIn((await run('volume', 'list', '--retired', '--json'))[1], 'CLI2')).toMatchObject(isRetired);
  expect(await run('volume', 'reinstate', 'CLI2')).toEqual([
    0,
    expect.stringMatching(/^volume CLI2 is in use again; import its files again/),
  ]);
  expect(await run('volume', 'reinstate', 'CLI2')).toEqual([1, 'tapegate: volume "CLI2" is not retired\n']);
});

test('the commands for volumes work beside the database as well', async () => {
  const dir = makeDataDir();
  const run = cliAt({ DATABASE_URL: app.databaseUrl, DATA_DIR: dir, HOME: dir });
  await addFiles(app.ctx, [{ path: '/here/1', volume: 'HERE1' }]);
  expect(await run('volume', 'move', 'HERE1', 'HERE2', '--json')).toEqual([
    0,
    '{"fileCount":1,"bytes":1000,"requestCount":0}\n',
  ]);
  expect(await run('volume', 'retire', 'HERE2', '--withdraw', '--reason', 'worn out', '--json')).toEqual([
    0,
    '{"fileCount":1,"bytes":1000,"filesElsewhere":0,"filesWithdrawn":1,"requestCount":0}\n',
  ]);
  expect(retiredIn((await run('volume', 'list', '--retired', '--json'))[1], 'HERE2')).toMatchObject(isRetired);
  expect((await run('volume', 'list'))[1]).not.toContain('HERE2');
  expect(await run('volume', 'reinstate', 'HERE2', '--json')).toEqual([0, '{"name":"HERE2"}\n']);
});
