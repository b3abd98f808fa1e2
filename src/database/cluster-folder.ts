/** The directory of an embedded database: found, refused or made. Errors name the setting that leads to it. */
import { execFileSync } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import { codeOf, messageOf } from '../errors.js';
import { runProgram, type Server } from './postmaster.js';
import { admitUser, DATABASE_USER, RULES, replaceFile } from './server-access.js';

const REMEDY = 'move it away, or name another folder as DATA_DIR';

/**
 * Returns whether there is a directory.
 * @param dataDir of the cluster, in DATA_DIR
 * @throws Error if anything else is in its place
 */
export function findCluster(dataDir: string): boolean {
  for (const folder of [path.dirname(dataDir), dataDir]) {
    try {
      const stats = fs.statSync(folder, { throwIfNoEntry: false });
      if (!stats) return false;
      if (stats.isDirectory()) continue;
    } catch (error) {
      const problem = codeOf(error) === 'ENOTDIR' ? 'a part of it is a file' : messageOf(error);
      throw new Error(`there can be no folder ${folder} (DATA_DIR): ${problem}`, { cause: error });
    }
    throw new Error(`${folder} is no folder: ${REMEDY}`);
  }
  return true;
}

/** @throws Error if the directory is neither a cluster nor empty */
export function refuseForeign(dataDir: string): void {
  if (!findCluster(dataDir) || fs.existsSync(path.join(dataDir, 'PG_VERSION'))) return;
  if (fs.readdirSync(dataDir).length > 0) throw new Error(`${dataDir} is there already, and is no database: ${REMEDY}`);
}

/** Makes a directory level by level: Node's own recursion never ends if the kernel refuses one, as in /proc. */
export function makeFolder(dir: string): void {
  if (fs.existsSync(dir)) return;
  makeFolder(path.dirname(dir));
  try {
    fs.mkdirSync(dir, { mode: 0o755 });
  } catch (error) {
    if (codeOf(error) === 'EEXIST') return;
    throw new Error(`${dir} cannot be made (DATA_DIR): ${messageOf(error)}`, { cause: error });
  }
}

/** Makes a cluster elsewhere and renames it, so that neither a crash nor a race leaves half of one. */
export async function initialise(server: Server): Promise<void> {
  const { dataDir, user } = server;
  const partial = makePartial(dataDir);
  try {
    if (user.uid !== undefined && user.gid !== undefined) fs.chownSync(partial, user.uid, user.gid);
    const locale = ['--locale-provider=builtin', '--locale=C.UTF-8'];
    const options = ['-U', DATABASE_USER, '-A', 'peer', '-E', 'UTF8', ...locale, '--no-instructions'];
    await runProgram(server, 'initdb', partial, options);
    replaceFile(path.join(partial, 'pg_hba.conf'), RULES, user);
    admitUser(partial, user);
    fs.renameSync(partial, dataDir);
  } catch (error) {
    if (!fs.existsSync(path.join(dataDir, 'PG_VERSION'))) throw error; // otherwise another process was faster
  } finally {
    removePartials(dataDir);
  }
}

function makePartial(dataDir: string): string {
  try {
    return fs.mkdtempSync(`${dataDir}.init-`);
  } catch (error) {
    const problem = messageOf(error);
    throw new Error(`no database can be made in ${path.dirname(dataDir)} (DATA_DIR): ${problem}`, { cause: error });
  }
}

/** Removes incomplete clusters, including those of killed processes. */
function removePartials(dataDir: string): void {
  const folder = path.dirname(dataDir);
  const names = fs.readdirSync(folder).filter((name) => name.startsWith(`${path.basename(dataDir)}.init-`));
  const partials = names.map((name) => path.join(folder, name));
  try {
    // `rm` follows no link that the server's user puts in place meanwhile
    execFileSync('rm', ['-rf', '--', ...partials], { stdio: 'ignore' });
  } catch {
    // another process still writes there, and removes it when it finds the cluster
  }
}
