/** `npm run docs`: writes the generated parts of docs/reference. The parts are committed, and a test checks them. */
import { writeFileSync } from 'node:fs';
import { readPages } from './pages.js';

for (const { file, text, current } of await readPages()) {
  if (current !== text) writeFileSync(file, current);
}
