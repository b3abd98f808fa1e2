/**
 * Removes the processes, mounts and directory of a test run, after the run has ended in any way. Runs as a separate process, which begins
 * when its standard input closes. The test run keeps that input open.
 *
 * Plain JavaScript, because it also runs without a build. `sweeping.ts` starts it.
 */
import { spawnSync } from 'node:child_process';
import { existsSync, readdirSync, readFileSync, readlinkSync, rmSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';

const LOOK_MS = 50;
/** Number of checks after which PostgreSQL is killed. Earlier, it is only asked to stop. */
const PATIENCE = 100;

for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) process.on(signal, () => {}); // they mean the run
const [dir = '', ...others] = process.argv.slice(2);
let words = '';
for await (const chunk of process.stdin) words += chunk;
const { keepDirectory = false, spare } = words ? JSON.parse(words) : {};
const mounts = findMounts();
// a process that waits in the kernel for a frozen file system cannot be killed
for (const mount of mounts) spawnSync('fsfreeze', ['--unfreeze', mount], { stdio: 'ignore' });
await endProcesses();
for (const mount of mounts) spawnSync('umount', ['-l', mount], { stdio: 'ignore' });
const directories = keepDirectory ? [] : [dir];
// the run removes other directories itself, unless it was killed
if (!words) directories.push(...others);
for (const directory of directories) rmSync(directory, { recursive: true, force: true, maxRetries: 5 });

/** Returns mounts below the directory, deepest first. */
function findMounts() {
  const table = read(() => readFileSync('/proc/self/mountinfo', 'utf8'));
  const points = table.split('\n').map((line) => {
    const [, , , , point = ''] = line.split(' ');
    return point.replace(/\\(\d{3})/g, (_, code) => String.fromCharCode(Number.parseInt(code, 8)));
  });
  return points.filter((point) => point.startsWith(`${dir}/`)).reverse();
}

/** Kills processes until none is left, because a killed process may have started another one. */
async function endProcesses() {
  for (let looks = 0; ; looks++) {
    const found = findProcesses();
    if (found.length === 0) return;
    for (const { pid, isPostgres } of found) {
      end(pid, isPostgres && looks <= PATIENCE ? 'SIGQUIT' : 'SIGKILL');
      end(pid, 'SIGCONT'); // it may have been stopped
    }
    await sleep(LOOK_MS);
  }
}

/** Returns the processes whose working directory, environment or arguments contain the directory. PostgreSQL works in its cluster. */
function findProcesses() {
  const found = [];
  for (const name of readdirSync('/proc')) {
    if (!/^\d+$/.test(name) || Number(name) === process.pid) continue;
    const [, state, parent] = /\) (\w) (\d+)/.exec(read(() => readFileSync(`/proc/${name}/stat`, 'latin1'))) ?? [];
    if (state === undefined || state === 'Z' || Number(parent) === spare) continue;
    const place = read(() => readlinkSync(`/proc/${name}/cwd`));
    const texts = ['environ', 'cmdline'].map((file) => read(() => readFileSync(`/proc/${name}/${file}`, 'utf8')));
    const isOurs =
      `${place}/`.startsWith(`${dir}/`) ||
      texts.some((text) => `${text}\0`.includes(`${dir}/`) || `${text}\0`.includes(`=${dir}\0`));
    if (isOurs) found.push({ pid: Number(name), isPostgres: existsSync(`${place}/PG_VERSION`) });
  }
  return found;
}

/** Returns an empty text for a process that has ended or belongs to another user. */
function read(look) {
  try {
    return look();
  } catch {
    return '';
  }
}

function end(pid, signal) {
  try {
    process.kill(pid, signal);
  } catch {
    // the process has just ended
  }
}
