/** Files that are withdrawn during a restore or while requested, and the commands for withdrawals. */
import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, expect, test } from 'vitest';
import { TapeError } from '../../src/core/errors.js';
import { withdrawFiles } from '../../src/domain/catalogue/withdrawals.js';
import { withEngine } from '../support/engine-by-hand.js';
import { readRestored, readStage } from '../support/engine-watch.js';
import { addFiles, addTaped } from '../support/factories.js';
import { useMemorySite } from '../support/memory-site.js';
import { cancel } from '../support/mutations.js';
import { cleanUp, makeDataDir, runCli } from '../support/process.js';
import { viewRequest, waitForState } from '../support/request-view.js';
import { makeRequest } from '../support/rest.js';
import { createGate, waitFor } from '../support/wait.js';

const { app, library, countReads } = useMemorySite({ isIdle: true });
afterAll(cleanUp);

const POLICY = { state: 'FAILED', errorClass: 'POLICY' };

test('a file that is withdrawn while a drive reads it is restored, and one that waits for a drive is not read', async () => {
  await addTaped(app.ctx, library, [
    { path: '/read/1', volume: 'W1', position: 1n },
    { path: '/read/2', volume: 'W2', position: 1n },
    { path: '/read/3', volume: 'W3', position: 1n },
  ]);
  const gate = createGate();
  library.onRead = async () => {
    await gate.opened;
  };
  const id = await makeRequest(app, { quota: 'alice', files: ['/read/1', '/read/2', '/read/3'] });
  await withEngine(app, library, async () => {
    await waitFor('both drives to read', async () => countReads() === 2);
    await withdrawFiles(app.ctx, { path: '/read/', reason: 'replaced' });
    gate.open();
    const { files } = await waitForState(app, id, 'PARTIAL');
    expect(files.map(({ state, error }) => [state, error]).sort()).toEqual([
      ['FAILED', 'withdrawn from the archive: replaced'],
      ['ON_DISK', null],
      ['ON_DISK', null],
    ]);
    const there = files.find(({ state }) => state === 'ON_DISK')?.path ?? '';
    expect(readRestored(app, there)?.length).toBeGreaterThan(0);
    expect(countReads()).toBe(2);
    await cancel(app, id);
    await waitFor('the copy to leave', async () => readRestored(app, there) === undefined);
    expect(await readStage(app, there)).toBe('T');
  });
});

test('a file that is withdrawn while a drive fails to read it is not tried again', async () => {
  await addTaped(app.ctx, library, [{ path: '/fail/1', volume: 'W4', position: 1n }]);
  const gate = createGate();
  library.onRead = async () => {
    await gate.opened;
    throw new TapeError('TRANSIENT', 'the drive has lost its place');
  };
  const id = await makeRequest(app, { quota: 'alice', files: ['/fail/1'] });
  await withEngine(app, library, async () => {
    await waitFor('a read', async () => countReads() === 1);
    await withdrawFiles(app.ctx, { path: '/fail/1' });
    gate.open();
    const { files } = await waitForState(app, id, 'PARTIAL');
    expect(files[0]).toMatchObject({ ...POLICY, error: 'withdrawn from the archive' });
  });
  expect(await readStage(app, '/fail/1')).toBe('T');
});

test('requests that are created while a directory is withdrawn get none of its files', async () => {
  const paths = Array.from({ length: 200 }, (_, n) => `/race/${100 + n}`);
  await addFiles(
    app.ctx,
    paths.map((each) => ({ path: each, size: 1n })),
  );
  const requests = Array.from({ length: 12 }, (_, n) =>
    makeRequest(app, { quota: 'alice', ...(n % 2 === 0 ? { patterns: '/race/' } : { files: paths }) }),
  );
  const [ids] = await Promise.all([Promise.all(requests), withdrawFiles(app.ctx, { path: '/race/' })]);
  for (const id of ids) {
    const { files, filesTotal, filesFailed, filesUnknown } = await viewRequest(app, id);
    expect(files.filter(({ state }) => state !== 'FAILED')).toEqual([]);
    expect(filesFailed).toBe(filesTotal);
    expect([0, 200]).toContain(filesTotal + filesUnknown);
  }
  const { rows } = await app.ctx.db.pool.query(
    `SELECT count(*)::int AS recalls FROM recall c JOIN tape_file f ON f.id = c.file_id WHERE f.path LIKE '/race/%'`,
  );
  expect(rows).toEqual([{ recalls: 0 }]);
});

test('an operator withdraws, lists and reinstates files by command, and previews what a complete list would withdraw', async () => {
  const dir = makeDataDir();
  const env = { TAPEGATE_URL: app.url, TAPEGATE_TOKEN: app.token, DATA_DIR: path.join(dir, 'none'), HOME: dir };
  const list = path.join(dir, 'list.csv');
  const write = (names: readonly string[]) => {
    const rows = names.map((name) => `/cli/${name},1000,T,V1,${name.charCodeAt(0)}\n`).join('');
    writeFileSync(list, `path,size,stage,volume,position\n${rows}`);
  };
  const run = async (...words: string[]) => {
    const { code, stdout, stderr } = await runCli(words, { env });
    return [code, stdout + stderr];
  };
  write(['a', 'b', 'c']);
  expect(await run('import', list)).toEqual([0, '3 files added, 0 updated\n']);
  expect(await run('withdraw', '/cli/a', '--reason', 'wrong', '--dry-run')).toEqual([
    0,
    '1 file, 1.00 kB, would be withdrawn\n',
  ]);
  expect(await run('withdraw', '/cli/a', '--reason', 'wrong')).toEqual([0, '1 file, 1.00 kB, withdrawn\n']);
  expect(await run('ls', '/cli/', '--withdrawn')).toEqual([0, 'T    1.00 kB  /cli/a  (wrong)\n']);
  expect(await run('withdraw', '/cli')).toEqual([
    1,
    'tapegate: there is no file "/cli"; it is a directory: to select the files below it, use "/cli/"\n',
  ]);
  expect(await run('withdraw', '/cli/b', '--reason', 'a@b')).toEqual([
    2,
    'tapegate: --reason must not contain an email address: "a@b"\n',
  ]);
  write(['b']);
  expect(await run('import', list, '--complete', '/cli')).toEqual([
    1,
    'tapegate: nothing was imported: the list omits 1 of 2 files below "/cli/", which is more than the 5 % that an import may withdraw\n',
  ]);
  const told = '0 files added, 0 updated\n1 of 2 files withdrawn, because the list does not contain them\n';
  expect(await run('import', list, '--complete', '/cli', '--max-withdrawn', '100', '--dry-run')).toEqual([
    0,
    `nothing was imported; an import would make these changes:\n${told}`,
  ]);
  expect(await run('import', list, '--complete', '/cli', '--max-withdrawn', '50')).toEqual([0, told]);
  write(['a', 'b', 'c']);
  expect(await run('import', list)).toEqual([
    0,
    '0 files added, 0 updated\n1 withdrawn file restored to the catalogue, because the list contains them again\n' +
      '1 file stays withdrawn, because a command withdrew them: to restore them to the catalogue, run "tapegate reinstate"\n',
  ]);
  expect(await run('reinstate', '/cli/')).toEqual([0, '1 file, 1.00 kB, restored to the catalogue\n']);
  expect(await run('import', list, '--max-withdrawn', '5')).toEqual([
    2,
    expect.stringContaining('--max-withdrawn needs --complete'),
  ]);
  expect(await run('import', list, '--complete', '/cli', '--max-withdrawn', '101')).toEqual([
    2,
    expect.stringContaining('--max-withdrawn must be a whole number from 0 to 100, not "101"'),
  ]);
});
