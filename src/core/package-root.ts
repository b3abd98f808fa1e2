import { existsSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

/** The root directory of the project: the nearest directory above this file that contains a package.json. */
export const packageRoot = findRoot(path.dirname(fileURLToPath(import.meta.url)));

function findRoot(dir: string): string {
  return existsSync(path.join(dir, 'package.json')) ? dir : findRoot(path.dirname(dir));
}
