/**
 * `npm run docs`: writes the generated parts of docs/reference. The generated parts are committed, and a test checks
 * that they are up to date.
 */
import { writeFileSync } from 'node:fs';
import { readPages } from './pages.js';

for (const { file, text, current } of await readPages()) {
  if (current !== text) writeFileSync(file, current);
}
