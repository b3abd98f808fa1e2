/** Features for people at a terminal: personal settings, tables that fit, local times and completion. */
import { mkdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, expect, test } from 'vitest';
import { createToken } from '../../src/domain/access/tokens.js';
import { addQuota, addTaped } from '../support/factories.js';
import { createMemoryLibrary } from '../support/memory-library.js';
import { cleanUp, cliFile, makeDataDir, runCli, runProgram, startProcess } from '../support/process.js';
import { waitForState } from '../support/request-view.js';
import { makeRequest } from '../support/rest.js';
import { findProgram } from '../support/run-example.js';
import { useApp } from '../support/use-app.js';

const library = createMemoryLibrary();
let home: string;

const app = useApp({ library }, async () => {
  await addQuota(app.ctx, 'alice', 10n ** 12n);
  await addTaped(app.ctx, library, [{ path: '/ocean/a' }, { path: '/ocean/b' }]);
  home = makeDataDir();
});
afterAll(cleanUp);

const env = () => ({ HOME: home, DATA_DIR: path.join(home, 'none') });
const run = (...args: string[]) => runCli(args, { env: env() });

function set(settings: unknown): string {
  const file = path.join(home, '.config/tapegate/config.json');
  mkdirSync(path.dirname(file), { recursive: true });
  writeFileSync(file, typeof settings === 'string' ? settings : JSON.stringify(settings));
  return file;
}

test('the settings file names a server and a quota, and the environment and options override it', async () => {
  const file = set({ server: app.url, quota: 'alice' });
  expect((await run('request', '--pattern', '/ocean/')).stdout).toMatch(/^request \d+: 2 files/);
  expect((await run('request', '--quota', 'nobody', '--pattern', '/ocean/')).stderr).toContain('nobody');
  const elsewhere = await runCli(['requests'], { env: { ...env(), TAPEGATE_URL: 'http://127.0.0.1:1' } });
  expect(elsewhere.stderr).toContain('http://127.0.0.1:1');
  expect((await run('quota', 'show', 'alice')).stdout).toContain('alice');
  set({ server: app.url });
  const { code, stderr } = await run('request', '--pattern', '/ocean/');
  expect([code, stderr]).toEqual([2, `tapegate: give --quota <user>, or set "quota" in ${file}\n`]);
});

test('bad settings are reported with their file, name and value', async () => {
  const file = set('{');
  const bad: [unknown, string][] = [
    ['{', `${file} is not JSON: `],
    [[], `${file} must contain a JSON object, such as {"server"`],
    [{ sever: 'x' }, `${file}: unknown setting "sever"; known settings: server, quota`],
    [{ quota: 3 }, `${file}: quota must be a string, not 3`],
    [{ server: 'ftp://x' }, `server in ${file}`],
  ];
  for (const [settings, message] of bad) {
    set(settings);
    const { code, stderr } = await run('requests');
    expect({ settings, code, stderr }).toEqual({ settings, code: 2, stderr: expect.stringContaining(message) });
  }
});

test('a request charges the quota of the user whose token is shown, unless another one is given', async () => {
  set({ server: app.url });
  const { secret } = await createToken(app.ctx, { name: 'alice', role: 'USER' });
  const shown = { ...env(), TAPEGATE_URL: app.url, TAPEGATE_TOKEN: secret };
  const estimate = async (...args: string[]) =>
    await runCli(['request', '--file', '/ocean/a', '--dry-run', ...args], { env: shown });
  expect((await estimate()).stdout).toMatch(/^quota {7}alice: /m);
  expect((await estimate('--quota', 'nobody')).stderr).toContain('nobody');
});

const isTerminal = findProgram('script') !== undefined;
if (!isTerminal) console.warn('script(1) is not installed: no real terminal is tested');

/** Returns the output of a command in a terminal of this width. */
async function show(columns: number, ...args: string[]): Promise<string> {
  return (await runCli(args, { env: { ...env(), TAPEGATE_URL: app.url }, columns })).stdout;
}

const UTC = '2098-12-31T20:00:00';

test('tables fit a narrow terminal, and times are relative unless --utc is given', async () => {
  const id = await makeRequest(app, { quota: 'alice', files: ['/ocean/a'], label: 'narrow', retention: UTC });
  await waitForState(app, id, 'COMPLETED');
  const narrow = await show(40, 'requests', '--quota', 'alice');
  expect(Math.max(...narrow.split('\n').map((line) => line.length))).toBeLessThanOrEqual(60);
  expect(narrow).toMatch(/^LABEL {4}narrow$/m);
  expect(narrow).toMatch(/^UNTIL {4}in \d+ days$/m);
  const usual = await show(80, 'requests', '--quota', 'alice');
  expect(usual).toMatch(/^ID +USER +STATE .* UNTIL +LABEL\n(?:.*\n)*\d+ +alice .* in \d+ days +narrow\n$/);
  const shown = await show(40, 'show', String(id));
  expect(shown).toMatch(/^REQUEST \d+ +COMPLETED\nLABEL +narrow\nFILES +\/ocean\/a\nUSER +alice\n/);
  expect(shown).toMatch(/^UNTIL {7}\d{4}-\d\d-\d\d \d\d:\d\d:\d\d \(in\n {12}\d+ days\)$/m);
  expect(shown.split('\n').filter((line) => line.length > 40 && !line.includes(app.restoreDir))).toEqual([]);
  const wide = await show(200, 'requests', '--quota', 'alice');
  expect(wide.split('\n')[0]).toMatch(/^ID +USER +STATE/);
  expect(await show(200, 'requests', '--quota', 'alice', '--utc')).toContain(`${UTC} `);
});

test('a long label is truncated to the width of a terminal, and printed whole with --wide and elsewhere', async () => {
  const label = `Ö日本${'long '.repeat(40)}end`;
  const id = await makeRequest(app, { quota: 'alice', files: ['/ocean/b'], label, retention: UTC });
  const lineOf = (output: string) => output.split('\n').find((line) => line.startsWith(`${id} `)) ?? '';
  expect(lineOf(await show(80, 'requests'))).toMatch(/ in \d+ days +Ö日本long .*…$/);
  expect(lineOf(await show(80, 'requests')).length).toBe(78); // two of the letters are two columns wide
  expect(lineOf(await show(80, 'requests', '--wide'))).toContain(label);
  const plain = await runCli(['requests'], { env: { ...env(), TAPEGATE_URL: app.url } });
  expect(lineOf(plain.stdout)).toContain(label);
});

test.skipIf(!isTerminal)('times are local in a terminal, and in UTC elsewhere', async () => {
  const zone = { ...env(), TZ: 'Asia/Kathmandu', TAPEGATE_URL: app.url, SHELL: '/bin/sh' };
  const id = await makeRequest(app, { quota: 'alice', files: ['/ocean/b'], label: 'zone', retention: UTC });
  const command = `stty cols 200; exec ${process.execPath} ${cliFile} update ${id} --label zone`;
  const asked = await startProcess('script', ['-qec', command, '/dev/null'], { env: zone }).ended;
  expect(asked.stdout).toMatch(/, kept until 2099-01-01 01:45:00 \(in \d+ days\)\r\n$/);
  expect((await runProgram(['requests'], { env: zone })).stdout).toContain(`${UTC} `);
});

test.each([['--help'], ['request', '--help'], ['volume', 'retire', '--help']])(
  '%s %s fits a terminal',
  async (...args) => {
    const help = await show(80, ...args);
    const isExample = (line: string) => line.startsWith('  tapegate');
    expect(help.split('\n').filter((line) => line.length > 80 && !isExample(line))).toEqual([]);
    const words = (text: string) => text.split(/\s+/);
    expect(words(help)).toEqual(words((await run(...args)).stdout));
  },
);

const complete = (words: string[]) =>
  `COMP_WORDS=(tapegate ${words.map((word) => `"${word}"`).join(' ')}); COMP_CWORD=${words.length}; _tapegate; echo "\${COMPREPLY[*]}"`;

test.skipIf(!findProgram('bash'))('bash completes commands, choices and options', async () => {
  const file = path.join(home, 'complete.bash');
  writeFileSync(file, (await run('completion', 'bash')).stdout);
  const asked = [
    ['request', '--quota', ''],
    ['quota', 'set', 'x', '--size', ''],
    ['quo'],
    ['quota', 'se'],
    ['suspend', 'd'],
    ['request', '--pri'],
    ['--quota', 'x', 'token', 'cr'],
  ];
  const { stdout, stderr } = await startProcess('bash', [
    '--norc',
    '-c',
    `. ${file}; ${asked.map(complete).join('; ')}`,
  ]).ended;
  expect([stdout.trim().split('\n'), stderr]).toEqual([['quota', 'set', 'drive disk', '--print-paths', 'create'], '']);
  expect(await run('completion', 'tcsh')).toEqual({
    code: 2,
    stdout: '',
    stderr: expect.stringContaining("'tcsh' is invalid for argument 'shell'. Allowed choices are bash, zsh, fish."),
  });
});

test('the completion of zsh is valid', async () => {
  const file = path.join(home, 'complete.zsh');
  const { code, stdout } = await run('completion', 'zsh');
  writeFileSync(file, stdout);
  expect([code, stdout.length > 5000]).toEqual([0, true]);
  if (!findProgram('zsh')) return console.warn('zsh is not installed: its completion is not checked');
  expect(await startProcess('zsh', ['-n', file]).ended).toEqual({ code: 0, stdout: '', stderr: '' });
});

test.skipIf(!findProgram('fish'))(
  'fish completes commands, choices and options, and files after a command',
  async () => {
    const file = path.join(home, 'complete.fish');
    writeFileSync(file, (await run('completion', 'fish')).stdout);
    const lines = [
      'quo',
      'quota s',
      'suspend dri',
      'token create --role us',
      'token create --ro',
      'import complete.f',
      'quota comp',
    ];
    const asked = lines.map((line) => `complete -C "tapegate ${line}"`);
    const fish = ['--no-config', '-c', `cd ${home}; source ${file}; ${asked.join('; ')}`];
    const { stdout, stderr } = await startProcess('fish', fish, { env: env() }).ended;
    const words = ['quota', 'set', 'show', 'drive', 'user', '--role', 'complete.fish'];
    expect([stdout.trim().split('\n').sort(), stderr]).toEqual([words.sort(), '']);
  },
);
