/** A library directory with programs and secrets, like the directory that an administrator prepares on a host. */
import { mkdirSync, symlinkSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { makeTempDir } from './temp-dir.js';

export const libraryDir = makeTempDir('libraries');
for (const part of ['programs', 'secrets']) mkdirSync(path.join(libraryDir, part));

/** Environment for engines, and for libraries in the test's process. */
export const LIBRARY_ENV = { TAPEGATE_LIBRARY_DIR: libraryDir };

/** Adds a program to the library directory. @returns its name */
export function addProgram(name: string, file: string): string {
  symlinkSync(file, path.join(libraryDir, 'programs', name));
  return name;
}

addProgram('sh', '/bin/sh');
addProgram('cat', '/bin/cat');
addProgram('true', '/bin/true');
addProgram('node', process.execPath);

export const secretFile = (name: string): string => path.join(libraryDir, 'secrets', name);

let count = 0;

/** Adds a secret, by default for servers on this host. @returns its name */
export function addSecret(content: string, hosts: readonly string[] = ['127.0.0.1', 'localhost']): string {
  const name = `secret-${++count}`;
  writeFileSync(secretFile(name), content, { mode: 0o600 });
  writeFileSync(`${secretFile(name)}.hosts`, `${hosts.join('\n')}\n`);
  return name;
}
