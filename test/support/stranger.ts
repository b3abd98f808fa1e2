/** An unprivileged user of the host. Only root can run these tests. */
import { chownSync } from 'node:fs';
import { type Running, startProcess } from './process.js';

export const isRoot = process.geteuid?.() === 0;

/** The user id. */
export const STRANGER = 65_534;

/** Runs a script as the unprivileged user, with `fs`, `path` and `args`. */
export function asStranger(script: string, ...args: string[]): Running {
  const head =
    "const fs = require('node:fs'); const path = require('node:path'); const args = process.argv.slice(1);\n";
  return startProcess(process.execPath, ['-e', head + script, ...args], { uid: STRANGER, gid: STRANGER, cwd: '/' });
}

export function giveToStranger(file: string): void {
  chownSync(file, STRANGER, STRANGER);
}
