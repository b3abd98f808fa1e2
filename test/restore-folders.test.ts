import { mkdirSync, rmdirSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { openFolder, removeCopy } from '../src/engine/restore-area.js';
import { makeTempDir } from './app.js';

let root: string;

beforeAll(() => {
  root = makeTempDir();
});
afterAll(() => rmSync(root, { recursive: true, force: true }));

test('a folder that is tidied away again and again while it is opened is made again, and no failure of the file', async () => {
  const errors: unknown[] = [];
  let isOver = false;
  const tidying = (async () => {
    while (!isOver) {
      for (const folder of ['a/b', 'a']) {
        try {
          rmdirSync(path.join(root, folder));
        } catch {
          // not there just now
        }
      }
      await new Promise((resolve) => setImmediate(resolve));
    }
  })();
  for (let round = 0; round < 3000; round++) {
    try {
      const folder = await openFolder(root, '/a/b/file');
      await folder.handle.close();
    } catch (error) {
      errors.push(error);
    }
  }
  isOver = true;
  await tidying;
  // it may have to give up on a folder that goes every time, to be tried again later, and never for good
  expect(errors.filter((error) => !String((error as { code?: string }).code).includes('ENOENT'))).toEqual([]);
});

test('the folders of a copy are removed up to the first that is not empty', async () => {
  mkdirSync(path.join(root, 'x/y/z'), { recursive: true });
  writeFileSync(path.join(root, 'x/y/z/file'), '');
  writeFileSync(path.join(root, 'x/other'), '');
  const folder = await openFolder(root, '/x/y/z/file');
  const { statSync, existsSync } = await import('node:fs');
  const { mtimeNs } = statSync(path.join(root, 'x/y/z/file'), { bigint: true });
  await folder.handle.close();
  await removeCopy({ mountpoint: root, path: '/x/y/z/file', size: 0n, mtimeNs });
  expect([existsSync(path.join(root, 'x/y')), existsSync(path.join(root, 'x/other'))]).toEqual([false, true]);
});
