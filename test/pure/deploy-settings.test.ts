/** The wrapper of the commands reads settings as systemd reads an EnvironmentFile, with a POSIX shell. */
import { execFileSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { expect, test } from 'vitest';
import { packageRoot } from '../../src/package-root.js';
import { makeTempDir } from '../support/temp-dir.js';

const START = 'exec /usr/bin/env node /opt/tapegate/dist/program/tapegate.cjs "$@"';
const SETTINGS = 'settings=/etc/tapegate/tapegate.env';

/** Returns the environment and arguments of a program that the wrapper starts. */
function readAs(text: string, ...args: string[]): { settings: Record<string, string>; args: string[] } {
  const dir = makeTempDir();
  const [wrapper, settings] = [path.join(dir, 'tapegate'), path.join(dir, 'tapegate.env')];
  writeFileSync(settings, text);
  const script = readFileSync(path.join(packageRoot, 'deploy/systemd/tapegate'), 'utf8');
  expect([script.includes(START), script.includes(SETTINGS)]).toEqual([true, true]);
  const print = 'console.log(JSON.stringify({ settings: process.env, args: process.argv.slice(1) }))';
  const started = script
    .replace(SETTINGS, () => `settings=${settings}`)
    .replace(START, () => `exec "${process.execPath}" -e '${print}' -- "$@"`);
  writeFileSync(wrapper, started);
  const { settings: found, ...rest } = JSON.parse(
    execFileSync('/bin/sh', [wrapper, ...args], { env: {}, cwd: dir, encoding: 'utf8' }),
  );
  const { PWD, OLDPWD, _, SHLVL, ...own } = found; // of the shell
  return { settings: own, ...rest };
}

test('values are taken literally, and nothing in them is run', () => {
  const lines = {
    DATABASE_URL: 'postgresql://t:a$b@db/tapegate?sslmode=verify-full&sslrootcert=/etc/ca.pem',
    SMTP_URL: 'smtp://u:pa$word@mail.example.org',
    MAIL_FROM: 'Tapegate <tapegate@example.org>',
    OIDC_CLIENT_SECRET: '$(touch ran)`touch ran`; touch ran | touch ran # no comment',
    LABEL: 'it\'s "quoted" within, * ? [a] ~ !',
    EMPTY: '',
  };
  const text = Object.entries(lines).map(([name, value]) => `${name}=${value}\n`);
  const { settings, args } = readAs(text.join(''), 'ls', 'a b', '*');
  expect(settings).toEqual(lines);
  expect(args).toEqual(['ls', 'a b', '*']);
});

test.each([
  ['# A=1\n  ; B=2\n\n   C=3\nno setting\nexport D=4\n5E=6\n', { C: '3' }],
  ['A = spaced  \nB=\ttab\t\nC= a  b \n', { A: 'spaced', B: 'tab', C: 'a  b' }],
  [
    `A="a 'b' # \\"c\\" \\$d \\\`e \\\\ \\n"\nB='a "b" \\c $d'\n`,
    { A: 'a \'b\' # "c" $d `e \\ \\n', B: 'a "b" \\c $d' },
  ],
  ['A="one\n two"\nB=\'three\n\nfour\'\nC=5', { A: 'one\n two', B: 'three\n\nfour', C: '5' }],
  ['A=one\\\n two\nB="three\\\nfour"\nC=a\\ \\b\\\\\n', { A: 'one two', B: 'threefour', C: 'a b\\' }],
  [`A="one" 'two'three\nB=""\nC=''\n`, { A: 'onetwothree', B: '', C: '' }],
  ['A=1\r\nB="2"\r\nA=3\r\n', { A: '3', B: '2' }],
  ['A=\\', { A: '' }],
])('the file %j is read as systemd reads it', (text, expected) => {
  expect(readAs(text).settings).toEqual(expected);
});

test('the settings file of the release is read literally', () => {
  const text = readFileSync(path.join(packageRoot, 'deploy/systemd/tapegate.env'), 'utf8');
  const lines = text.split('\n').filter((line) => /^[A-Z]/.test(line));
  expect(Object.entries(readAs(text).settings).map((setting) => setting.join('='))).toEqual(lines);
});
