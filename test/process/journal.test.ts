/** The log of a service, and its reports to systemd. */

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmodSync, fstatSync, openSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { pino } from 'pino';
import { expect, test } from 'vitest';
import { openLogFile } from '../../src/cli/connection/runtime.js';
import { notifyReady } from '../../src/core/journal.js';
import { packageRoot } from '../../src/core/package-root.js';
import { createDatabase } from '../support/database.js';
import { startCli } from '../support/process.js';
import { makeTempDir } from '../support/temp-dir.js';

const dir = makeTempDir();

/** Creates a substitute for systemd-notify. @returns the file that the substitute writes */
function makeNotifier(): string {
  const told = path.join(dir, 'told');
  writeFileSync(path.join(dir, 'systemd-notify'), `#!/bin/sh\necho "$NOTIFY_SOCKET $*" >> ${told}\n`);
  chmodSync(path.join(dir, 'systemd-notify'), 0o755);
  return told;
}

/**
 * Runs the program with standard error in a file, which JOURNAL_STREAM names only if `isJournal`.
 * @returns the text in the file
 */
async function runWithJournal(isJournal: boolean): Promise<string> {
  const file = path.join(dir, `journal-${isJournal}`);
  const stderr = openSync(file, 'w');
  const { dev, ino } = fstatSync(stderr, { bigint: true });
  const env = {
    ...process.env,
    ...{ JOURNAL_STREAM: `${dev}:${isJournal ? ino : ino + 1n}`, DATABASE_URL: 'nonsense' },
  };
  const program = path.join(packageRoot, 'dist/program/tapegate.cjs');
  const child = spawn(process.execPath, [program, 'serve'], { env, stdio: ['ignore', 'ignore', stderr] });
  await once(child, 'exit');
  return readFileSync(file, 'utf8');
}

test('the program of systemd reports that a service is ready, and a failure of it has a reason', async () => {
  const told = makeNotifier();
  const env = { NOTIFY_SOCKET: '/run/notify', PATH: `${dir}:${process.env.PATH}` };
  expect(await notifyReady(env)).toBeUndefined();
  expect(readFileSync(told, 'utf8')).toBe('/run/notify --ready\n');
  expect(await notifyReady({ ...env, PATH: path.join(dir, 'none') })).toMatch(/^cannot notify systemd .*ENOENT/);
  expect(await notifyReady({ PATH: path.join(dir, 'none') })).toBeUndefined();
});

test('a service of systemd prints no hints for a first try', async () => {
  makeNotifier();
  const database = await createDatabase();
  const env = {
    DATABASE_URL: database.url,
    DATA_DIR: dir,
    NOTIFY_SOCKET: '/run/notify',
    PATH: `${dir}:${process.env.PATH}`,
  };
  const server = startCli(['serve'], { env: { ...env, PORT: '0', TAPEGATE_AUTH: 'token' } });
  await server.waitForOutput(/^ {2}access .*\n\n/m);
  server.child.kill('SIGTERM');
  const { code, stdout } = await server.ended;
  expect([code, stdout.match(/ready at|^ {2}tapes|^ {2}restored|terminal/gm)]).toEqual([0, ['ready at']]);
  await database.drop();
});

test('lines have priorities if standard error is the journal, and none otherwise', async () => {
  const lines = (await runWithJournal(true)).trimEnd().split('\n');
  expect(lines.filter((line) => !/^<[3467]>./.test(line))).toEqual([]);
  expect(lines[0]).toMatch(/^<3>tapegate: /);
  expect(await runWithJournal(false)).not.toMatch(/^<\d>/m);
});

test('a log that cannot be written fails no caller', () => {
  const log = pino({}, openLogFile(openSync('/dev/full', 'w')));
  expect(() => {
    for (let n = 0; n < 3; n++) log.info('a line that is lost');
  }).not.toThrow();
});
