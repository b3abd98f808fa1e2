/**
 * Removes everything that a run of tests, a torture or a fuzz has left: processes, mounts and the directory. A process of its own, which
 * begins when its standard input ends. The run holds that open, so that it ends with the run, however that ends.
 *
 * Plain JavaScript, since it also runs without a build. `sweeping.ts` starts it and says what it may read.
 */
import { spawnSync } from 'node:child_process';
import { existsSync, readdirSync, readFileSync, readlinkSync, rmSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';

const LOOK_MS = 50;
/** Looks after which PostgreSQL is killed as well, which was asked to end at once before. */
const PATIENCE = 100;

for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) process.on(signal, () => {}); // they mean the run
const [dir = '', ...others] = process.argv.slice(2);
let words = '';
for await (const chunk of process.stdin) words += chunk;
const { keepFolder = false, spare } = words ? JSON.parse(words) : {};
const mounts = findMounts();
// a process that waits in the kernel for a frozen file system cannot be ended
for (const mount of mounts) spawnSync('fsfreeze', ['--unfreeze', mount], { stdio: 'ignore' });
await endProcesses();
for (const mount of mounts) spawnSync('umount', ['-l', mount], { stdio: 'ignore' });
const folders = keepFolder ? [] : [dir];
// the run removes the others itself unless it was killed
if (!words) folders.push(...others);
for (const folder of folders) rmSync(folder, { recursive: true, force: true, maxRetries: 5 });

/** Below the directory, the deepest first. */
function findMounts() {
  const table = read(() => readFileSync('/proc/self/mountinfo', 'utf8'));
  const points = table.split('\n').map((line) => {
    const [, , , , point = ''] = line.split(' ');
    return point.replace(/\\(\d{3})/g, (_, code) => String.fromCharCode(Number.parseInt(code, 8)));
  });
  return points.filter((point) => point.startsWith(`${dir}/`)).reverse();
}

/** A killed process may just have started another one: looks until there is none. */
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

/** Processes that work in the directory (PostgreSQL does in its cluster), or have it in their environment or their arguments. */
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

/** Empty for a process that has ended, or is another user's. */
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
    // it has just ended
  }
}
