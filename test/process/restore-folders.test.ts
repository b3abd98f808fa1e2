import { afterAll, beforeAll, expect, test } from 'vitest';
import { openFolder } from '../../src/engine/disk/making.js';
import { codeOf } from '../../src/errors.js';
import type { TestApp } from '../support/app.js';
import { startIdleApp } from '../support/engine-by-hand.js';
import { cleanUp, kill, startProcess } from '../support/process.js';

let app: TestApp;

beforeAll(async () => {
  app = await startIdleApp();
});
afterAll(async () => {
  await app.close();
  await cleanUp();
});

/** Removes the empty folders again and again, as the removal of another file of theirs would. */
const TIDY = `
  const { rmdirSync } = require('node:fs');
  const gone = (folder) => { try { rmdirSync(folder); } catch {} };
  console.log('tidying');
  for (;;) { gone('a/b'); gone('a'); }
`;

test('a folder that is tidied away while it is opened is made again, and is no link that leads away', async () => {
  const tidy = startProcess(process.execPath, ['-e', TIDY], { cwd: app.restoreDir });
  await tidy.waitForOutput(/tidying/);
  const failures = new Set<string | undefined>();
  for (let round = 0; round < 200; round++) {
    try {
      const folder = await openFolder(app.ctx, { diskId: 1, mountpoint: app.restoreDir, path: '/a/b/file' });
      await folder.handle.close();
    } catch (error) {
      failures.add(codeOf(error) ?? String(error));
    }
  }
  await kill(tidy);
  // one that is gone every time is looked for again later
  failures.delete('ENOENT');
  expect([...failures]).toEqual([]);
});
