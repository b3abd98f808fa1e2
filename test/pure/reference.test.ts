/** Checks that the generated parts of docs/reference are current. */
import path from 'node:path';
import { expect, test } from 'vitest';
import { examples } from '../../src/cli/terminal/examples.js';
import { readPages } from '../../src/main/reference/pages.js';

test('the generated parts of docs/reference are current (npm run docs writes them)', async () => {
  for (const { file, text, current } of await readPages()) {
    expect({ file: path.basename(file), text }).toEqual({ file: path.basename(file), text: current });
  }
});

test('the examples of commands begin with `tapegate`, or with settings', () => {
  const lines = Object.values(examples).flat();
  expect(lines.filter((line) => !/^([A-Z_]+=\S+ )*tapegate /.test(line))).toEqual([]);
});
