#!/usr/bin/env node
/**
 * The program's entry point. If Node.js is too old, reports the version before loading code that the old version cannot
 * parse. Therefore this file uses neither static imports nor syntax that is newer than `import()`.
 */

const OLDEST = '20.19';

const running = process.versions.node;
const [major, minor] = running.split('.').map(Number);
const [oldestMajor, oldestMinor] = OLDEST.split('.').map(Number);

if (Number(major) > Number(oldestMajor) || (major === oldestMajor && Number(minor) >= Number(oldestMinor))) {
  void import('./cli.js');
} else {
  process.stderr.write(`tapegate: Node.js ${OLDEST} or newer is required, not ${running}\n`);
  process.exitCode = 1;
}

export {};
