/** `npm run settings`: writes the tables of settings into src/cli/README.md, which is committed and held by a test. */
import { readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { packageRoot } from '../core/package-root.js';
import { formatTables } from './settings.js';

const file = path.join(packageRoot, 'src/cli/README.md');
let document = readFileSync(file, 'utf8');
for (const [name, table] of Object.entries(formatTables())) {
  const place = new RegExp(`(<!-- ${name}: npm run settings -->\\n\\n)(?:\\|.*\\n)*`);
  document = document.replace(place, (_all, mark: string) => `${mark}${table}\n`);
}
writeFileSync(file, document);
