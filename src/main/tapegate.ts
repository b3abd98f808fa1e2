#!/usr/bin/env node
/**
 * The entry point of the program. Reports a version of Node.js that is too old, before loading code that this version
 * cannot parse. Therefore this file has no static import, and no syntax that is newer than `import()`.
 */

/**
 * The minimum version of Node.js, as in `engines` in package.json. A test compares the minimum version with
 * package.json.
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
