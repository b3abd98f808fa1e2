/** Listens on ports of this host as another user. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { onTestFinished } from 'vitest';

/** User id of an unprivileged user without files. */
export const STRANGER = 64_321;

/** Listens as another user until the test ends. @returns the port */
export async function listenAs(uid: number, host: string): Promise<number> {
  const script = `const s = require('net').createServer().listen(0, '${host}', () => console.log(s.address().port))`;
  const child = spawn(process.execPath, ['-e', script], { uid, cwd: '/', stdio: ['ignore', 'pipe', 'inherit'] });
  onTestFinished(() => void child.kill());
  const [line] = (await once(createInterface(child.stdout), 'line')) as [string];
  return Number(line);
}
