/** Rows at A and R: what another system has restored is in no restore area of Tapegate. */
import { afterAll, beforeAll, expect, test } from 'vitest';
import { examine } from '../../src/engine/doctor/doctor.js';
import { createMemoryBackend } from '../../src/tape/memory.js';
import { startApp, type TestApp } from '../support/app.js';
import { readRestored, readStage } from '../support/engine-watch.js';
import { addFiles, addQuota, putOnTape } from '../support/factories.js';
import { cleanUp, runCli } from '../support/process.js';
import { viewRequest, waitForState } from '../support/request-view.js';
import { makeRequest } from '../support/rest.js';

const backend = createMemoryBackend();
let app: TestApp;

beforeAll(async () => {
  app = await startApp({ backend });
  await addQuota(app.ctx, 'alice', 10n ** 9n);
});
afterAll(async () => {
  await cleanUp();
  await app.close();
});

const BYTES = Buffer.from('bytes');
const importText = (text: string) =>
  runCli(['import', '-'], {
    env: { DATABASE_URL: app.databaseUrl },
    stdin: `path,size,stage,volume,position\n${text}\n`,
  });

test('new files at A and R are on tape, which is said, and are recalled', async () => {
  for (const position of [1n, 2n]) putOnTape(backend, { volume: 'OTHER', position, bytes: BYTES });
  const { code, stdout } = await importText('/other/r,5,R,OTHER,1\n/other/a,5,A,OTHER,2');
  expect({ code, stdout }).toEqual({
    code: 0,
    stdout: '2 files added, 0 updated\n2 new files at A or R are T: there is no copy of them in the restore area\n',
  });
  const id = await makeRequest(app, { quota: 'alice', patterns: '/other/' });
  await waitForState(app, id, 'COMPLETED');
  for (const file of ['/other/r', '/other/a']) expect(readRestored(app, file)).toEqual(BYTES);
});

test.each(['T', 'R'])('a file that counts as restored without a copy is put right by a row at %s', async (letter) => {
  const file = `/wrong/${letter}`;
  putOnTape(backend, { volume: `WRONG${letter}`, position: 1n, bytes: BYTES });
  await addFiles(app.ctx, [{ path: file, size: 5n, stage: 'RESTORED', volume: `WRONG${letter}` }]);
  const id = await makeRequest(app, { quota: 'alice', files: [file] });
  expect((await viewRequest(app, id)).state).toBe('COMPLETED'); // and nothing is there
  const { stdout } = await importText(`${file},5,${letter},WRONG${letter},1`);
  expect(stdout).toBe('0 files added, 1 updated\n');
  await waitForState(app, id, 'COMPLETED');
  expect(readRestored(app, file)).toEqual(BYTES);
});

test('a file that counts as restored without a copy can have another size, and is recalled', async () => {
  const file = '/wrong/size';
  putOnTape(backend, { volume: 'SIZES', position: 1n, bytes: BYTES });
  await addFiles(app.ctx, [{ path: file, size: 4n, stage: 'RESTORED', volume: 'SIZES' }]);
  const id = await makeRequest(app, { quota: 'alice', files: [file] });
  expect(await importText(`${file},5,,SIZES,1`)).toMatchObject({
    code: 0,
    stdout: expect.stringContaining('1 updated'),
  });
  await waitForState(app, id, 'COMPLETED');
  expect([await readStage(app, file), readRestored(app, file)]).toEqual(['R', BYTES]);
});

test('the doctor finds a file that counts as restored without a copy, and has it recalled', async () => {
  const file = '/wrong/doctor';
  putOnTape(backend, { volume: 'DOCTOR', position: 1n, bytes: BYTES });
  await addFiles(app.ctx, [{ path: file, size: 5n, stage: 'RESTORED', volume: 'DOCTOR' }]);
  const id = await makeRequest(app, { quota: 'alice', files: [file] });
  const find = async (repair: boolean) => {
    const findings: unknown[] = [];
    await examine(app.ctx, { repair, checksums: false }, (finding) => findings.push(finding));
    return findings;
  };
  const fault = {
    kind: 'restored-without-copy',
    thing: file,
    expected: 'a noted copy, its file being RESTORED',
    found: 'none',
  };
  expect(await find(false)).toEqual([{ ...fault, isRepaired: false }]);
  expect(await find(true)).toEqual([{ ...fault, isRepaired: true }]);
  await waitForState(app, id, 'COMPLETED');
  expect([await readStage(app, file), readRestored(app, file)]).toEqual(['R', BYTES]);
  expect(await find(false)).toEqual([]);
});
