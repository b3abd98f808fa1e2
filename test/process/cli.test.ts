/** The program and its commands in general: help, usage errors, missing or broken servers, and safe output. */
import { once } from 'node:events';
import { readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer, type RequestListener } from 'node:http';
import type { AddressInfo } from 'node:net';
import path from 'node:path';
import type { Command } from 'commander';
import { afterAll, expect, test } from 'vitest';
import { examples } from '../../src/cli/terminal/examples.js';
import { listSettings, variableOf } from '../../src/config/settings.js';
import { packageRoot } from '../../src/core/package-root.js';
import { createProgram } from '../../src/main/program.js';
import { installation } from '../../src/main/table.js';
import { refused } from '../support/command-results.js';
import { addFiles, addQuota } from '../support/factories.js';
import { takePort } from '../support/ports.js';
import {
  cleanUp,
  cliFile,
  copyDatabase,
  makeDataDir,
  runCli,
  runProgram,
  serverPid,
  startProcess,
} from '../support/process.js';
import { makeTempDir } from '../support/temp-dir.js';
import { useApp } from '../support/use-app.js';

let closedUrl: string;

const app = useApp({}, async () => {
  const { port, letGo } = await takePort();
  await letGo();
  closedUrl = `http://127.0.0.1:${port}`;
});
afterAll(cleanUp);

test('Node.js that is too old is reported in one line', async () => {
  const dir = makeTempDir();
  const preload = path.join(dir, 'older.cjs');
  writeFileSync(preload, `Object.defineProperty(process.versions, 'node', { value: '20.18.3' });`);
  const { engines } = JSON.parse(readFileSync(path.join(packageRoot, 'package.json'), 'utf8'));
  const oldest = engines.node.replace('>=', '');
  const running = startProcess(process.execPath, ['--require', preload, cliFile, '--version']);
  expect(await running.ended).toEqual(refused(1, `Node.js ${oldest} or newer is required, not 20.18.3`));
  // before this check, the program loads nothing that needs a newer Node.js
  expect(readFileSync(path.join(packageRoot, 'src/main/tapegate.ts'), 'utf8')).not.toMatch(/^import /m);
  rmSync(dir, { recursive: true });
});

test('the help loads few files, and neither cryptography nor HTTP', async () => {
  const dir = makeTempDir();
  const preload = path.join(dir, 'loaded.cjs');
  const loaded = '{ files: Object.keys(require.cache), builtins: process.moduleLoadList }';
  writeFileSync(preload, `process.on('exit', () => console.error(JSON.stringify(${loaded})));`);
  const running = startProcess(process.execPath, ['--require', preload, cliFile, '--help']);
  const { files, builtins } = JSON.parse((await running.ended).stderr) as Record<'files' | 'builtins', string[]>;
  const names = files.map((file) => path.basename(file).replace(/-[\w-]{8}\.cjs$/, ''));
  expect(names.sort()).toEqual(['base', 'cli', 'loaded.cjs', 'program', 'rolldown-runtime', 'tapegate.cjs']);
  expect(builtins.filter((name) => /^NativeModule (crypto|http|tls|zlib)$/.test(name))).toEqual([]);
  rmSync(dir, { recursive: true });
});

test('the program prints to both streams, and ends with the exit code of its command', async () => {
  const { version } = JSON.parse(readFileSync(path.join(packageRoot, 'package.json'), 'utf8'));
  expect(await runProgram(['--version'])).toEqual({ code: 0, stdout: `${version}\n`, stderr: '' });
  const env = { TAPEGATE_URL: closedUrl };
  expect(await runProgram(['ls'], { env })).toEqual(
    refused(4, `no Tapegate server responds at ${closedUrl} (TAPEGATE_URL)`),
  );
});

test('the program reads standard input', async () => {
  const env = { TAPEGATE_URL: app.url, TAPEGATE_TOKEN: app.token };
  const args = ['request', '--quota', 'nobody', '--file', '-', '--dry-run'];
  expect((await runProgram(args, { env, stdin: '/a\n/b\n' })).stderr).toContain('nobody');
  expect((await runProgram(args, { env })).stderr).toContain('--file contains no paths');
});

/** Returns the names of all commands, such as `quota set`. */
const namesOf = (command: Command): string[] =>
  command.commands.flatMap((each) => {
    const inner = namesOf(each);
    return inner.length === 0 ? [each.name()] : inner.map((name) => `${each.name()} ${name}`);
  });
const commands = namesOf(await createProgram(installation.commands, '', ['completion']));

const findNames = (help: string) => [...help.matchAll(/^ {2}([a-z]+) /gm)].map((match) => match[1] ?? '');

test('--help lists every command, and no example is of another one', async () => {
  const { code, stdout } = await runCli(['--help']);
  expect(code).toBe(0);
  expect(stdout).toContain(
    'Exit codes: 0 success, 1 failure, 2 wrong usage, 3 a request ended without all of its files, ',
  );
  const listed: string[] = [];
  for (const name of findNames(stdout)) {
    const isGroup = commands.some((command) => command.startsWith(`${name} `));
    const inner = isGroup ? findNames((await runCli([name, '--help'])).stdout) : [];
    listed.push(...(isGroup ? inner.filter((each) => each !== 'help').map((each) => `${name} ${each}`) : [name]));
  }
  expect(listed.filter((name) => name !== 'help').sort()).toEqual([...commands].sort());
  expect(Object.keys(examples).filter((name) => !commands.includes(name))).toEqual([]);
});

test.each(commands)('the help of %s shows its options, and examples that use no others', async (name) => {
  const { code, stdout, stderr } = await runCli([...name.split(' '), '--help']);
  expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
  expect(stdout).toMatch(new RegExp(`^Usage: tapegate ${name}( |\\n)`));
  const options = [...stdout.matchAll(/^ {2}(?:-\w, )?(--[a-z-]+)/gm)].map((match) => match[1]);
  expect(options).toContain('--help');
  const findUnknown = (text: string) => (text.match(/--[a-z][a-z-]*/g) ?? []).filter((each) => !options.includes(each));
  expect(findUnknown(stdout.replace(/"tapegate [^"]*"/g, ''))).toEqual([]);

  const lines = examples[name] ?? [];
  expect(stdout.includes(`Examples:\n  ${lines[0]}`)).toBe(lines.length > 0);
  for (const line of lines) {
    expect(line).toMatch(new RegExp(`(^|[ =])tapegate ${name}( |$)`));
    const [, given = ''] = line.split(`tapegate ${name}`);
    expect({ line, unknown: findUnknown(given.replace(/ \| .*/, '')) }).toEqual({ line, unknown: [] });
    const needsArgument = /^Usage: .*<.*$/m.test(stdout);
    expect({ line, isComplete: !needsArgument || given.trim() !== '' }).toEqual({ line, isComplete: true });
  }
});

test('the help of start, serve and work names every environment variable', async () => {
  const variables = [...listSettings().map(({ field }) => variableOf(field)), 'TAPEGATE_URL', 'TAPEGATE_TOKEN'];
  expect(variables.length).toBeLessThanOrEqual(61);
  for (const command of ['start', 'serve', 'work']) {
    const { stdout } = await runCli([command, '--help']);
    const [, named = ''] = /\nSettings are([\s\S]*)/.exec(stdout) ?? [];
    expect(new Set(named.match(/\b[A-Z]{3,}(_[A-Z]+)*\b/g))).toEqual(new Set(variables));
  }
  expect((await runCli(['--help'])).stdout).toContain('"tapegate start --help"');
});

test.each([
  [['frobnicate'], "unknown command 'frobnicate'"],
  [['quota', 'frobnicate'], "unknown command 'frobnicate'"],
  [['ls', '--frobnicate'], "unknown option '--frobnicate'"],
  [['watch'], "missing required argument 'id'"],
  [
    ['suspend', 'tape', 'x'],
    "command-argument value 'tape' is invalid for argument 'kind'. Allowed choices are volume, drive, library, user, disk, clock.",
  ],
  [
    ['import', '-', '--format', 'ls'],
    "option '--format <name>' argument 'ls' is invalid. Allowed choices are csv, jsonl, find, s3-inventory.",
  ],
  [['disk', 'add', '/d'], "required option '--size <size>' not specified"],
  [['request', '--quta', 'ann', '--pattern', 'x'], "unknown option '--quta'\n(Did you mean --quota?)"],
])('%j is wrong usage', async (args, problem) => {
  expect(await runCli(args)).toEqual(refused(2, `${problem}\n(see --help)`));
});

test('no command, or half of one, shows the help and is wrong usage', async () => {
  for (const args of [[], ['quota'], ['disk']]) {
    const { code, stdout, stderr } = await runCli(args);
    expect({ code, stdout }).toEqual({ code: 2, stdout: '' });
    expect(stderr).toMatch(/^Usage: tapegate/);
  }
});

test.each([
  ['request', '--quota', 'a', '--pattern', 'b', '--watch'],
  ['watch', '1'],
])('%s without a server ends with 4 and one line', async (...args) => {
  expect(await runCli(args, { env: { TAPEGATE_URL: closedUrl } })).toEqual(
    refused(4, `no Tapegate server responds at ${closedUrl} (TAPEGATE_URL)`),
  );
});

async function listen(answer: RequestListener): Promise<{ url: string; close(): void }> {
  const server = createServer(answer).listen(0, '127.0.0.1');
  await once(server, 'listening');
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, close: () => server.close() };
}

test('a change whose answer is lost ends with 1 and warns that it may be done; a lost read ends with 4', async () => {
  const server = await listen((req) => req.socket.destroy());
  const env = { TAPEGATE_URL: server.url };
  const made = await runCli(['request', '--quota', 'a', '--pattern', 'b'], { env });
  const read = await runCli(['requests'], { env });
  server.close();
  expect(made).toMatchObject({ code: 1, stdout: '' });
  expect(made.stderr).toMatch(
    /^tapegate: .+: the server may have made the change: check whether it did before you repeat the command\n$/,
  );
  expect(read).toEqual({ code: 4, stdout: '', stderr: expect.not.stringContaining('repeat') });
});

test('a redirect is not followed, and both URLs are reported', async () => {
  const asked: string[] = [];
  const other = await listen((req, res) => {
    asked.push(`${req.method} ${req.url}`);
    res.end('{"data":{}}');
  });
  const server = await listen((req, res) => res.writeHead(307, { location: `${other.url}${req.url}` }).end());
  const message = `${server.url}/graphql redirects to ${other.url}/graphql: if Tapegate has moved there, set TAPEGATE_URL to its new address`;
  for (const args of [['request', '--quota', 'a', '--pattern', 'b'], ['requests']])
    expect(await runCli(args, { env: { TAPEGATE_URL: server.url } })).toEqual(refused(1, message));
  expect(asked).toEqual([]);
  server.close();
  other.close();
});

test('a TAPEGATE_URL that is no URL is wrong usage', async () => {
  expect(await runCli(['ls'], { env: { TAPEGATE_URL: 'localhost:8080' } })).toEqual(
    refused(
      2,
      'invalid environment variable:\n  TAPEGATE_URL must be a URL that begins with http:// or https://, not "localhost:8080"',
    ),
  );
});

test('a server that is no Tapegate is reported', async () => {
  const result = await runCli(['ls'], { env: { TAPEGATE_URL: `${app.url}/somewhere` } });
  expect(result).toEqual(refused(1, `${app.url}/somewhere responds with status 404`));
});

test('a reader that closes the pipe early is no error', async () => {
  await addFiles(
    app.ctx,
    Array.from({ length: 3000 }, (_, n) => ({ path: `/pipe/${'x'.repeat(200)}/${n}` })),
  );
  const env = { TAPEGATE_URL: app.url, TAPEGATE_TOKEN: app.token };
  const cli = `"${process.execPath}" "${cliFile}"`;
  const pipe = async (args: string) => {
    const script = `set -o pipefail; ${cli} ${args} | head -n 1`;
    return await startProcess('/bin/bash', ['--norc', '-c', script], { env }).ended;
  };
  const list = await pipe('ls /pipe/ --limit 3000');
  expect(list).toMatchObject({ code: 0, stderr: '' });
  expect(list.stdout).toMatch(/^T {4}1\.00 kB {2}\/pipe\/x+\/\d+\n$/);
  expect(await pipe('--help')).toMatchObject({ code: 0, stderr: '' });
});

test('a reader that closes the pipe early leaves no embedded PostgreSQL behind', async () => {
  const env = { DATA_DIR: makeDataDir(), HOME: '/nowhere' };
  copyDatabase({ env });
  for (const command of ['plan', 'disk list']) {
    const line = `("${process.execPath}" "${cliFile}" ${command}; echo "ended with $?" >&2) | :`;
    expect(await startProcess('sh', ['-c', line], { env }).ended).toMatchObject({ stderr: 'ended with 0\n' });
    expect(serverPid(env.DATA_DIR)).toBeUndefined();
  }
});

test('control characters and bidirectional overrides do not reach the terminal', async () => {
  const path = '/ctl/\u001b]0;title\u0007\u009b31m\u202egnp.exe\r\n\t\u0085end';
  const label = 'a\u202eb';
  await addFiles(app.ctx, [{ path, size: 10n }]);
  await addQuota(app.ctx, 'eve', 100n);
  const env = { TAPEGATE_URL: app.url, TAPEGATE_TOKEN: app.token };
  const ls = await runCli(['ls', '/ctl/'], { env });
  const json = await runCli(['ls', '/ctl/', '--json'], { env });
  await runCli(['request', '--quota', 'eve', '--pattern', '/ctl/', '--label', label], { env });
  const requests = await runCli(['requests', '--quota', 'eve'], { env });
  const failed = await runCli(['request', '--quota', `\u001b[2J\u009b`, '--pattern', 'x'], { env });
  // biome-ignore lint/suspicious/noControlCharactersInRegex: the test looks for control characters
  const unsafe = /[\u0000-\u0009\u000b-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069]/;
  for (const { stdout, stderr } of [ls, json, requests, failed]) {
    expect(stdout).not.toMatch(unsafe);
    expect(stderr).not.toMatch(unsafe);
  }
  expect(ls.stdout).toBe('T   10 bytes  /ctl/\uFFFD]0;title\uFFFD\uFFFD31m\uFFFDgnp.exe\uFFFD\uFFFD\uFFFD\uFFFDend\n');
  expect(JSON.parse(json.stdout).path).toBe(path);
  expect(requests.stdout.split('\n')[1]).toMatch(/ {2}a\uFFFDb$/);
  expect(failed.code).toBe(2);
});

test('LOG_LEVEL=debug shows where in the sources an error comes from; otherwise no stack is shown', async () => {
  const env = { TAPEGATE_URL: closedUrl };
  const plain = await runCli(['ls'], { env });
  const debug = await runCli(['ls'], { env: { ...env, LOG_LEVEL: 'debug' } });
  expect(plain.stderr.split('\n')).toHaveLength(2);
  expect(debug.stderr).toMatch(/\n {4}at .*\/src\/cli\/connection\/gateway-client\.ts:\d+:\d+/);
  expect(debug.code).toBe(4);
});

interface SimulatedRow {
  strategy: string;
  mounts: number;
  driveHours: number;
  users: Record<string, { worst: number; median: number }>;
}

test('simulate compares the strategies on a trace, in all and by user', async () => {
  const dir = makeTempDir();
  const trace = path.join(dir, 'trace.csv');
  writeFileSync(trace, 'at,user,volume,start,size\n0,ann,A,0,1000000000\n5,ben,B,0,1000000000\n5,ben,A,5000,1000\n');
  const { code, stdout } = await runCli(['simulate', trace, '--json', '--drives', '1']);
  rmSync(dir, { recursive: true });
  const { rows, boundHours } = JSON.parse(stdout) as { rows: SimulatedRow[]; boundHours: number };
  expect(code).toBe(0);
  expect(rows).toHaveLength(6);
  for (const row of rows) {
    expect(Object.keys(row.users).sort()).toEqual(['ann', 'ben']);
    expect(row.driveHours).toBeGreaterThanOrEqual(boundHours);
    expect(row.users.ben?.worst).toBeGreaterThanOrEqual(row.users.ben?.median ?? Number.POSITIVE_INFINITY);
  }
  const mounts = Object.fromEntries(rows.map((row) => [row.strategy, row.mounts]));
  expect(mounts).toMatchObject({ 'arrival order': 3, tapegate: 2 });
});
