/** Modes of restored files with a group that an unprivileged engine cannot set. */
import { lstatSync } from 'node:fs';
import { chmod } from 'node:fs/promises';
import path from 'node:path';
import { expect, test } from 'vitest';
import { createBudget, PartialFile } from '../../src/restore-area/partial-file.js';
import { openExisting } from '../../src/restore-area/restore-area.js';
import { makeTempDir } from '../support/temp-dir.js';
import { asUnprivilegedUser, isRoot } from '../support/unprivileged-user.js';

/** Id of a group without the unprivileged user. */
const OTHER_GROUP = 12_002;

test.runIf(isRoot)('a file whose group cannot be set gives another group only the rights of all others', async () => {
  const dir = makeTempDir();
  await chmod(dir, 0o777);
  const directory = await openExisting('/', dir);
  const modes = await asUnprivilegedUser(async () => {
    const found: string[] = [];
    for (const mode of [0o640, 0o664, 0o600]) {
      const attributes = { mode, uid: null, gid: OTHER_GROUP, mtime: null };
      const copy = new PartialFile(directory, `${mode}`, { budget: createBudget(), attributes });
      await copy.write(Buffer.from('bytes'));
      await copy.finish();
      found.push((lstatSync(path.join(dir, `${mode}`)).mode & 0o7777).toString(8));
    }
    return found;
  });
  await directory.handle.close();
  expect(modes).toEqual(['600', '644', '600']);
});
