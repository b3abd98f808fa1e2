#!/usr/bin/env node
/**
 * Where the program begins: a Node.js that is too old for it is told, before anything is loaded that it cannot read. So
 * this file has no static import, and no syntax that is newer than `import()`.
 */

/** As `engines` in package.json says; a test holds the two together. */
const OLDEST = '20.19';

const running = process.versions.node;
const [major, minor] = running.split('.').map(Number);
const [oldestMajor, oldestMinor] = OLDEST.split('.').map(Number);

if (Number(major) > Number(oldestMajor) || (major === oldestMajor && Number(minor) >= Number(oldestMinor))) {
  void import('./cli.js');
} else {
  process.stderr.write(`tapegate: Node.js ${OLDEST} or newer is needed, and this is ${running}\n`);
  process.exitCode = 1;
}

export {};
