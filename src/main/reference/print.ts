/**
 * `npm run docs`: writes the generated parts of docs/reference. A test checks that the committed parts are up to date.
 */
import { writeFileSync } from 'node:fs';
import { readPages } from './pages.js';

for (const { file, text, current } of await readPages()) {
  if (current !== text) writeFileSync(file, current);
}
