import { existsSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

/** The top directory of the project, for source files and for compiled files. */
export const packageRoot = findRoot(path.dirname(fileURLToPath(import.meta.url)));

function findRoot(dir: string): string {
  return existsSync(path.join(dir, 'package.json')) ? dir : findRoot(path.dirname(dir));
}
