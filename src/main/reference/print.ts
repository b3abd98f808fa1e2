/** `npm run docs`: writes the generated parts of docs/reference, which are committed and checked by a test. */
import { writeFileSync } from 'node:fs';
import { readPages } from './pages.js';

for (const { file, text, current } of await readPages()) {
  if (current !== text) writeFileSync(file, current);
}
