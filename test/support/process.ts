/** Runs commands and servers in the test's process, and the built program in separate processes. */
import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { chownSync, existsSync, mkdirSync, readFileSync, rmSync, statSync } from 'node:fs';
import path from 'node:path';
import { Readable, Writable } from 'node:stream';
import { packageRoot } from '../../src/core/package-root.js';
import { isReachable } from '../../src/db/embedded/cluster.js';
import { findServer, isRunning } from '../../src/db/embedded/embedded.js';
import { runCommand } from '../../src/main/program.js';
import { installation } from '../../src/main/table.js';
import { leaveConnections } from './http.js';
import { makeDiskDir, makeTempDir } from './temp-dir.js';
import { waitFor } from './wait.js';

export const cliFile = path.join(packageRoot, 'dist/program/tapegate.cjs');

/** Returns the path of the built program. A user without access to the project's directory gets a linked copy. */
function cliFileFor(uid: number | undefined): string {
  if (uid === undefined || isReachable(path.dirname(cliFile))) return cliFile;
  publicRoot ??= linkTree();
  return path.join(publicRoot, 'dist/program/tapegate.cjs');
}

let publicRoot: string | undefined;

function linkTree(): string {
  const root = makeDiskDir();
  for (const part of ['package.json', 'dist', 'prisma', 'node_modules']) {
    execFileSync('cp', ['-al', path.join(packageRoot, part), root]);
  }
  process.on('exit', () => rmSync(root, { recursive: true, force: true }));
  return root;
}

export interface RunOptions {
  env?: Record<string, string>;
  /** Standard input; default: empty. With `null`, standard input stays open. */
  stdin?: string | Uint8Array | null;
  cwd?: string;
  uid?: number;
  gid?: number;
  /** Limit of open files of each process; default: the limit of this process. */
  descriptors?: number;
  /** Path of another version's program. */
  program?: string;
  /** Whether `start` creates its database. By default, `start` finds a copied empty database, which is faster. */
  initdb?: boolean;
}

export interface Result {
  code: number | null;
  stdout: string;
  stderr: string;
}

interface Output {
  stdout(): string;
  stderr(): string;
  ended: Promise<Result>;
  /** Waits until the standard output so far matches. */
  waitForOutput(pattern: RegExp): Promise<RegExpExecArray>;
}

export interface Running extends Output {
  child: ChildProcess;
  pid: number;
}

const children = new Set<ChildProcess>();

/** Starts a program whose environment contains only `env`, PATH and TMPDIR. */
export function startProcess(program: string, args: string[], options: RunOptions & { detached?: boolean } = {}) {
  const { stdin = '', env, descriptors, program: _, initdb: _initdb, ...rest } = options;
  const limited = ['-c', `ulimit -n ${descriptors}; exec "$0" "$@"`, program, ...args];
  const [file, given] = descriptors === undefined ? [program, args] : ['sh', limited];
  const { PATH, TMPDIR } = process.env;
  const child = spawn(file, given, { ...rest, env: { PATH, ...(TMPDIR && { TMPDIR }), ...env } });
  children.add(child);
  let stdout = '';
  let stderr = '';
  child.stdout.setEncoding('utf8').on('data', (text) => {
    stdout += text;
  });
  child.stderr.setEncoding('utf8').on('data', (text) => {
    stderr += text;
  });
  child.stdin.on('error', () => {}); // the program may end before it has read all input
  if (stdin !== null) child.stdin.end(stdin);
  const ended = new Promise<Result>((resolve, reject) => {
    child.on('error', reject);
    child.on('close', (code) => {
      children.delete(child);
      resolve({ code, stdout, stderr });
    });
  });
  const running: Running = {
    child,
    pid: child.pid ?? 0,
    stdout: () => stdout,
    stderr: () => stderr,
    ended,
    waitForOutput: (pattern) => waitForMatch(pattern, () => ({ stdout, stderr, isEnded: child.exitCode !== null })),
  };
  return running;
}

export function startCli(args: string[], options: RunOptions & { detached?: boolean } = {}): Running {
  if (!existsSync(cliFile)) throw new Error('build first: npm run build');
  return startProcess(process.execPath, [options.program ?? cliFileFor(options.uid), ...args], options);
}

/** Runs a command in a separate process, for tests of the command's user, directory, locale or exit. */
export async function runProgram(args: string[], options: RunOptions = {}): Promise<Result> {
  return await startCli(args, options).ended;
}

interface CommandOptions {
  env?: Record<string, string>;
  stdin?: string | Uint8Array;
  /**
   * Width of a simulated terminal; default: no terminal. Standard output and standard error both arrive in `stdout`.
   */
  columns?: number;
}

export interface RunningCommand extends Output {
  /** Interrupts the command, as Ctrl-C does. */
  interrupt(): void;
}

/** Starts a command in this process. The command's environment contains only `env` and PATH. */
export function startCommand(args: string[], { env, stdin = '', columns }: CommandOptions = {}): RunningCommand {
  const abort = new AbortController();
  const stdout = collect(columns);
  const stderr = columns === undefined ? collect() : stdout;
  const code = runCommand(installation, args, {
    env: { PATH: process.env.PATH, ...env },
    stdin: Readable.from(stdin.length === 0 ? [] : [Buffer.from(stdin)], { objectMode: false }),
    stdout: stdout.stream,
    stderr: stderr.stream,
    signal: abort.signal,
  });
  const output = () => ({ stdout: stdout.text(), stderr: stderr === stdout ? '' : stderr.text() });
  let isEnded = false;
  const ended = code.then((code) => {
    isEnded = true;
    return { code, ...output() };
  });
  return {
    stdout: () => output().stdout,
    stderr: () => output().stderr,
    interrupt: () => abort.abort(),
    ended,
    waitForOutput: (pattern) => waitForMatch(pattern, () => ({ ...output(), isEnded })),
  };
}

/** @throws Error with the output if the process ends without a match, or the time limit passes */
async function waitForMatch(
  pattern: RegExp,
  look: () => { stdout: string; stderr: string; isEnded: boolean },
): Promise<RegExpExecArray> {
  try {
    return await waitFor(`${pattern} in the output`, async () => {
      const { stdout, isEnded } = look();
      const match = pattern.exec(stdout);
      if (!match && isEnded) throw new Error('it has ended');
      return match ?? undefined;
    });
  } catch (cause) {
    const { stdout, stderr } = look();
    throw new Error(`no ${pattern} in the output: ${stdout.slice(-2000)}${stderr.slice(-2000)}`, { cause });
  }
}

/** Runs a command in this process. */
export async function runCli(args: string[], options: CommandOptions = {}): Promise<Result> {
  return await startCommand(args, options).ended;
}

/** A `serve` or `start` that runs in this process. */
export interface LocalServer extends RunningCommand {
  url: string;
  /** Stops the server, as a signal does. */
  stop(): Promise<Result>;
}

const localServers = new Set<LocalServer>();

/** Starts `serve` in this process on a free port. Also starts `start`, if `env` sets ENGINE=off. */
export async function serveHere(
  env: Record<string, string>,
  { command = 'serve', initdb = false } = {},
): Promise<LocalServer> {
  if (command === 'start' && !initdb) copyDatabase({ env });
  const running = startCommand([command], { env: { PORT: '0', LOG_LEVEL: 'warn', ...env } });
  const [, url = ''] = await running.waitForOutput(READY);
  const stop = async () => {
    localServers.delete(server);
    leaveConnections();
    running.interrupt();
    return await running.ended;
  };
  const server: LocalServer = { ...running, url, stop };
  localServers.add(server);
  return server;
}

/** Creates a stream that collects text. With `columns`, the stream is a terminal. */
function collect(columns?: number): { stream: Writable; text(): string } {
  const chunks: Buffer[] = [];
  const stream = new Writable({
    write: (chunk, _encoding, done) => {
      chunks.push(chunk);
      done();
    },
  });
  if (columns !== undefined) Object.assign(stream, { isTTY: true, columns });
  return { stream, text: () => Buffer.concat(chunks).toString() };
}

/** Matches the whole output of `start` or `serve` when the server is ready. The output may arrive in parts. */
export const READY = /ready at (\S+)\n[\s\S]*In another terminal.*\n\n.+\n\n$/;

/** Copies a migrated database to the directory in which `start` would create one, unless a database exists there. */
export function copyDatabase({ env = {}, uid, gid }: RunOptions): void {
  const { DATA_DIR = '', DATABASE_URL } = env;
  const { TEST_CLUSTER } = process.env;
  const cluster = path.join(DATA_DIR, 'postgres');
  if (!TEST_CLUSTER || DATABASE_URL || !path.isAbsolute(DATA_DIR) || existsSync(cluster)) return;
  if (mkdirSync(DATA_DIR, { recursive: true }) && uid !== undefined) chownSync(DATA_DIR, uid, gid ?? uid);
  execFileSync('cp', ['-a', TEST_CLUSTER, cluster]);
  if (uid !== undefined) execFileSync('chown', ['-R', `${uid}:${gid ?? uid}`, cluster]);
}

/** Runs `start` or `serve` in a separate process on a free port, and waits until the server is ready. */
export async function startServer(command: string, options: RunOptions): Promise<Running & { url: string }> {
  if (command === 'start' && !options.initdb) copyDatabase(options);
  const running = startCli([command], { ...options, env: { PORT: '0', LOG_LEVEL: 'warn', ...options.env } });
  const [, url = ''] = await running.waitForOutput(READY);
  return { ...running, url };
}

/** Ends a process with SIGTERM. */
export async function stop(running: Running): Promise<Result> {
  running.child.kill('SIGTERM');
  return await running.ended;
}

export async function kill(running: Running): Promise<void> {
  running.child.kill('SIGKILL');
  await running.ended;
}

/** Returns the process id of the embedded PostgreSQL in a DATA_DIR, or undefined if PostgreSQL does not run. */
export function serverPid(dataDir: string): number | undefined {
  const cluster = path.join(dataDir, 'postgres');
  if (!statSync(cluster, { throwIfNoEntry: false })?.isDirectory()) return undefined; // a test may put a file here
  return findServer(cluster)?.pid;
}

const dataDirs = new Set<string>();

/** Creates a DATA_DIR. `cleanUp` stops the PostgreSQL in the DATA_DIR and removes the directory. */
export function makeDataDir(): string {
  const dir = makeTempDir();
  dataDirs.add(dir);
  return dir;
}

/** Ends the processes that tests have started, and removes their directories. */
export async function cleanUp(): Promise<void> {
  for (const child of children) child.kill('SIGKILL');
  await Promise.all([...localServers].map((server) => server.stop()));
  for (const dir of dataDirs) {
    const pid = serverPid(dir);
    if (pid !== undefined) {
      process.kill(pid, 'SIGQUIT'); // SIGQUIT stops PostgreSQL at once
      await waitFor('PostgreSQL to end', async () => !isRunning(pid) || serverPid(dir) === undefined);
    }
    rmSync(dir, { recursive: true, force: true });
  }
  dataDirs.clear();
}

/** Returns the log of the embedded PostgreSQL. */
export function readServerLog(dataDir: string): string {
  return readFileSync(path.join(dataDir, 'postgres/server.log'), 'utf8');
}
