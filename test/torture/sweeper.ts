/**
 * Takes away all that a torture leaves: processes, mounts, and the folder. A process of its own, which begins when its
 * standard input ends; the torture holds that open, so that it ends with the torture, however that ends.
 */
import { spawnSync } from 'node:child_process';
import { readdirSync, readFileSync, readlinkSync, rmSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { KEEP, smallDisk } from './sweeping.js';

const LOOK_MS = 100;
/** Looks after which PostgreSQL is killed as well, which has been asked to end at once before. */
const PATIENCE = 50;

for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.on(signal, () => {}); // they mean the torture
const [dir = ''] = process.argv.slice(2);
let words = '';
for await (const chunk of process.stdin) words += chunk;
// what waits in the kernel for a frozen file system cannot be ended
spawnSync('fsfreeze', ['--unfreeze', smallDisk(dir)], { stdio: 'ignore' });
await endProcesses();
spawnSync('umount', ['-l', smallDisk(dir)], { stdio: 'ignore' }); // does nothing where nothing is mounted
if (!words.includes(KEEP)) rmSync(dir, { recursive: true, force: true, maxRetries: 5 });

/** What is killed may just have started another process: looks until there is none. */
async function endProcesses(): Promise<void> {
  for (let looks = 0; ; looks++) {
    const found = findProcesses();
    if (found.length === 0) return;
    for (const { pid, isOurs } of found) {
      end(pid, isOurs || looks > PATIENCE ? 'SIGKILL' : 'SIGQUIT');
      end(pid, 'SIGCONT'); // it may have been stopped
    }
    await sleep(LOOK_MS);
  }
}

/** Those of Tapegate are known by their environment, those of PostgreSQL by their working directory. */
function findProcesses(): { pid: number; isOurs: boolean }[] {
  const found: { pid: number; isOurs: boolean }[] = [];
  for (const name of readdirSync('/proc')) {
    if (!/^\d+$/.test(name) || Number(name) === process.pid) continue;
    const isOurs = read(() => readFileSync(`/proc/${name}/environ`, 'utf8')).includes(`DATA_DIR=${dir}/`);
    const isBelow = read(() => readlinkSync(`/proc/${name}/cwd`)).startsWith(`${dir}/`);
    if (isOurs || isBelow) found.push({ pid: Number(name), isOurs });
  }
  return found;
}

/** Empty for a process that has ended, or is another user's. */
function read(look: () => string): string {
  try {
    return look();
  } catch {
    return '';
  }
}

function end(pid: number, signal: NodeJS.Signals): void {
  try {
    process.kill(pid, signal);
  } catch {
    // it has just ended
  }
}
