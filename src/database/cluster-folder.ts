/** Where the cluster of an embedded database is, or is to be: what stands there already is told by the setting that names it. */
import fs, { type Stats } from 'node:fs';
import path from 'node:path';
import { codeOf, messageOf } from '../errors.js';

/**
 * Whether there is anything.
 * @param dataDir of the cluster, in DATA_DIR
 * @throws Error where it could be no folder
 */
export function findCluster(dataDir: string): boolean {
  for (const folder of [path.dirname(dataDir), dataDir]) {
    const stats = look(folder);
    if (!stats) return false;
    if (!stats.isDirectory()) throw new Error(`${folder} is no folder: ${REMEDY}`);
  }
  return true;
}

/** Somebody's own is left alone. @throws Error where a folder is no cluster, and is not empty either */
export function refuseForeign(dataDir: string): void {
  if (!findCluster(dataDir) || fs.existsSync(path.join(dataDir, 'PG_VERSION'))) return;
  if (fs.readdirSync(dataDir).length > 0) throw new Error(`${dataDir} is there already, and is no database: ${REMEDY}`);
}

const REMEDY = 'move it away, or name another folder as DATA_DIR';

function look(file: string): Stats | undefined {
  try {
    return fs.statSync(file, { throwIfNoEntry: false });
  } catch (error) {
    const problem = codeOf(error) === 'ENOTDIR' ? 'a part of it is a file' : messageOf(error);
    throw new Error(`there can be no folder ${file} (DATA_DIR): ${problem}`, { cause: error });
  }
}

/** Level by level: where nobody can make a folder though the one above is there, as in /proc, Node's own tries for ever. */
export function makeFolder(dir: string): void {
  if (fs.existsSync(dir)) return;
  makeFolder(path.dirname(dir));
  try {
    fs.mkdirSync(dir, { mode: 0o755 });
  } catch (error) {
    if (codeOf(error) !== 'EEXIST')
      throw new Error(`${dir} cannot be made (DATA_DIR): ${messageOf(error)}`, { cause: error });
  }
}

/** Beside the place of the cluster. */
export function makePartial(dataDir: string): string {
  try {
    return fs.mkdtempSync(`${dataDir}.init-`);
  } catch (error) {
    const problem = messageOf(error);
    throw new Error(`no database can be made in ${path.dirname(dataDir)} (DATA_DIR): ${problem}`, { cause: error });
  }
}
