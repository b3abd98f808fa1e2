import { rmSync } from 'node:fs';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { writeMarker } from '../../src/engine/disk/marker.js';
import { openFolder } from '../../src/engine/disk/restore-area.js';
import { codeOf } from '../../src/errors.js';
import { cleanUp, kill, startProcess } from '../support/process.js';
import { makeTempDir } from '../support/temp-dir.js';

let root: string;

beforeAll(async () => {
  root = makeTempDir();
  await writeMarker({ diskId: 1, mountpoint: root });
});
afterAll(async () => {
  await cleanUp();
  rmSync(root, { recursive: true, force: true });
});

/** Removes the empty folders again and again, as the removal of another file of theirs would. */
const TIDY = `
  const { rmdirSync } = require('node:fs');
  const gone = (folder) => { try { rmdirSync(folder); } catch {} };
  console.log('tidying');
  for (;;) { gone('a/b'); gone('a'); }
`;

test('a folder that is tidied away while it is opened is made again, and is no link that leads away', async () => {
  const tidy = startProcess(process.execPath, ['-e', TIDY], { cwd: root });
  await tidy.waitForOutput(/tidying/);
  const failures = new Set<string | undefined>();
  for (let round = 0; round < 1000; round++) {
    try {
      const folder = await openFolder({ diskId: 1, mountpoint: root }, '/a/b/file');
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
