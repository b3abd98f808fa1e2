/** Commands that open the database are audited with the user of the operating system. `audit` prints and exports the audit. */
import { mkdirSync, writeFileSync } from 'node:fs';
import { hostname, userInfo } from 'node:os';
import path from 'node:path';
import { expect, test } from 'vitest';
import { removeQuota, setQuota } from '../../src/domain/quotas/quotas.js';
import { done, parseLines } from '../support/command-results.js';
import { type Result, runCli } from '../support/process.js';
import { useApp } from '../support/use-app.js';

let env: Record<string, string>;

const app = useApp({}, async () => {
  env = { DATABASE_URL: app.databaseUrl, DATA_DIR: app.dataDir, TAPEGATE_URL: app.url, TAPEGATE_TOKEN: app.token };
});

test('the audit has the user and the host of commands that open the database', async () => {
  const rows = path.join(app.dataDir, 'rows.csv');
  const tree = path.join(app.dataDir, 'tree');
  writeFileSync(rows, 'path,size,stage\n/c/1,1000,T\n');
  mkdirSync(tree);
  writeFileSync(path.join(tree, 'one'), 'bytes');
  const commands = [
    ['quota', 'set', 'carol', '--size', '1T'],
    ['quota', 'remove', 'carol'],
    ['disk', 'add', path.join(app.dataDir, 'restore2'), '--size', '1G', '--create'],
    ['import', rows],
    ['archive', tree, '--prefix', '/arch'],
    ['doctor', '--repair'],
  ];
  for (const command of commands) expect(await runCli(command, { env })).toMatchObject({ code: 0 });
  const { rows: found } = await app.ctx.db.pool.query(
    `SELECT operation, result FROM audit WHERE who = $1 AND way = 'system' AND address = $2 ORDER BY id`,
    [userInfo().username, hostname()],
  );
  expect(found.map(({ operation, result }) => `${operation} ${result}`)).toEqual([
    'setQuota DONE',
    'removeQuota DONE',
    'setDisk DONE',
    'importRows DONE',
    'archive BEGUN',
    'archive DONE',
    'doctor BEGUN',
    'doctor DONE',
  ]);
});

test('the audit has a refused import with its faults', async () => {
  const rows = path.join(app.dataDir, 'bad.csv');
  writeFileSync(rows, 'path,size\nrelative,1000\n');
  expect((await runCli(['import', rows], { env })).code).toBe(1);
  const last = parseLines(await runCli(['audit', '--operation', 'importRows', '--json'], { env })).at(-1);
  expect(last).toMatchObject({ caller: userInfo().username, result: 'FAILED', errorCode: 'INVALID_INPUT', count: 1 });
  expect(last.input.faults[0]).toContain('relative');
});

test('the table shows which suspensions are drains', async () => {
  for (const command of ['drain', 'suspend', 'resume']) await runCli([command, 'clock', 'database'], { env });
  const { stdout } = await runCli(['audit', '--operation', 'suspend'], { env });
  expect(stdout).toMatch(/ suspend \(draining\) +clock database +DONE\n.* suspend +clock database +DONE\n$/);
});

test('a table and CSV contain no control character; JSON has the value as it was', async () => {
  const wild = '\u001b]0;title\u0007\u001b[2J\u202e=1+1';
  await expect(removeQuota(app.ctx, wild)).rejects.toMatchObject({ code: 'INVALID_INPUT' });
  const rows = ['audit', '--operation', 'removeQuota', '--caller', app.ctx.caller.name];
  const [table, csv, json] = await Promise.all(
    [[], ['--csv'], ['--json']].map((args) => runCli([...rows, ...args], { env })),
  );
  // biome-ignore lint/suspicious/noControlCharactersInRegex: the test looks for control characters
  const control = /[\u0000-\u0009\u000b-\u001f\u007f-\u009f\u202e]/;
  for (const { stdout } of [table, csv, json] as Result[]) {
    expect(stdout).not.toMatch(control);
    expect(stdout).toContain(']0;title');
  }
  expect(parseLines(json as Result).map(({ object }) => object)).toContain(wild);
});

test('the whole audit is exported as JSON Lines and CSV, and a table is limited', async () => {
  const caller = { ...app.ctx.caller, name: '=cmd,"x"' };
  const user = ['--caller', caller.name];
  const audit = (...args: string[]) => runCli(['audit', ...args], { env });
  for (let n = 0; n < 1010; n++) await setQuota({ ...app.ctx, caller }, { user: 'many', size: BigInt(n) });
  const json = await audit(...user, '--json');
  expect(parseLines(json).map(({ input }) => input.size)).toEqual(Array.from({ length: 1010 }, (_, n) => String(n)));
  const csv = await audit(...user, '--csv', '--limit', '2');
  const [header, first, second, ...rest] = csv.stdout.split('\n');
  expect(header).toBe(
    'at,caller,authentication,tokenId,address,operation,objectKind,object,input,result,errorCode,count',
  );
  expect(first).toMatch(/^[-:.T0-9]+Z,"'=cmd,""x""",SYSTEM,,,setQuota,QUOTA,many,"\{""size"": ?""1008""\}",DONE,,1$/);
  expect([second, rest]).toEqual([expect.stringMatching(/""size"": ?""1009""/), ['']]);
  expect(csv.stderr).toBe('older entries are not shown; --limit shows more\n');
  const table = await audit(...user);
  expect([table.stdout.trim().split('\n').length, table.stderr]).toEqual([1001, csv.stderr]);
  expect(await audit(...user, '--json', '--limit', '1010')).toEqual(done(json.stdout));
  expect((await audit(...user, '--csv', '--since', '30m')).stdout.split('\n')).toHaveLength(1012);
  expect((await audit(...user, '--csv', '--until', '1w')).stdout.split('\n')).toHaveLength(2);
  expect((await audit('--until', '2000-01-01')).stdout.trim()).toBe('AT  CALLER  FROM  OPERATION  OBJECT  RESULT');
});

test.each([
  [['--since', 'soon'], 'or how long ago, such as 10m or 3d'],
  [['--operation', 'setQuotas'], '--operation "setQuotas" is unknown; the operations are addLibrary, '],
  [['--since', '2026-02-01', '--until', '2026-01-01'], 'tapegate: --until must be later than since'],
])('audit %j is wrong usage', async (args, message) => {
  const result = await runCli(['audit', ...args], { env });
  expect(result).toEqual({ code: 2, stdout: '', stderr: expect.stringContaining(message) });
});
