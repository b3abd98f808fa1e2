/** Commands that open the database are audited by the operating system's user, and `audit` exports all of it. */
import { mkdirSync, writeFileSync } from 'node:fs';
import { hostname, userInfo } from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { setQuota } from '../../src/operations/quotas/quotas.js';
import { removeQuota } from '../../src/operations/quotas/remove.js';
import { startApp, type TestApp } from '../support/app.js';
import { runCli } from '../support/process.js';

let app: TestApp;
let env: Record<string, string>;

beforeAll(async () => {
  app = await startApp({});
  env = { DATABASE_URL: app.databaseUrl, DATA_DIR: app.dataDir, TAPEGATE_URL: app.url, TAPEGATE_TOKEN: app.token };
});
afterAll(() => app.close());

test('what commands do with the database opened has the user and the host of whoever ran them', async () => {
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
  for (const command of commands)
    expect([command[0], (await runCli(command, { env })).stderr]).toEqual([command[0], expect.any(String)]);
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
    'repair BEGUN',
    'repair DONE',
  ]);
});

test('an import that is refused is told with its faults', async () => {
  const rows = path.join(app.dataDir, 'bad.csv');
  writeFileSync(rows, 'path,size\nrelative,1000\n');
  expect((await runCli(['import', rows], { env })).code).toBe(1);
  const { stdout } = await runCli(['audit', '--operation', 'importRows', '--json'], { env });
  const last = JSON.parse(stdout.trim().split('\n').at(-1) ?? '');
  expect(last).toMatchObject({ who: userInfo().username, result: 'INVALID_INPUT', count: 1 });
  expect(last.given.faults[0]).toContain('relative');
});

test('a table and CSV move no cursor, whatever was asked for; JSON has it as it was', async () => {
  const wild = '\u001b]0;title\u0007\u001b[2J\u202e=1+1';
  await expect(removeQuota(app.ctx, wild)).rejects.toMatchObject({ code: 'INVALID_INPUT' });
  const rows = ['audit', '--operation', 'removeQuota', '--who', app.ctx.caller.name];
  const [table, csv, json] = [
    await runCli(rows, { env }),
    await runCli([...rows, '--csv'], { env }),
    await runCli([...rows, '--json'], { env }),
  ];
  // biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are what is looked for
  const control = /[\u0000-\u0009\u000b-\u001f\u007f-\u009f\u202e]/;
  for (const { stdout } of [table, csv, json]) {
    expect(stdout).not.toMatch(control);
    expect(stdout).toContain(']0;title');
  }
  const objects = json.stdout
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line).object);
  expect(objects).toContain(wild);
});

test('all of it is exported, page by page, as JSON lines and as CSV', async () => {
  const caller = { ...app.ctx.caller, name: '=cmd,"x"' };
  for (let n = 0; n < 1100; n++) await setQuota({ ...app.ctx, caller }, { user: 'many', size: BigInt(n) });
  const json = await runCli(['audit', '--who', caller.name, '--json'], { env });
  const sizes = json.stdout
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line).given.size);
  expect(sizes).toEqual(Array.from({ length: 1100 }, (_, n) => String(n)));
  const csv = await runCli(['audit', '--who', caller.name, '--csv', '--limit', '2'], { env });
  const [header, first, second, ...rest] = csv.stdout.split('\n');
  expect(header).toBe('at,who,way,tokenId,address,operation,objectKind,object,given,result,count');
  expect(first).toMatch(/^[-:.T0-9]+Z,"'=cmd,""x""",system,,,setQuota,QUOTA,many,"\{""size"": ?""1098""\}",DONE,1$/);
  expect([second, rest]).toEqual([expect.stringMatching(/""size"": ?""1099""/), ['']]);
  expect(csv.stderr).toBe('there is more before that; --limit shows it\n');
  const table = await runCli(['audit', '--who', caller.name], { env });
  expect([table.stdout.trim().split('\n').length, table.stderr]).toEqual([1001, csv.stderr]);
  const whole = await runCli(['audit', '--who', caller.name, '--json', '--limit', '1100'], { env });
  expect([whole.stdout, whole.stderr]).toEqual([json.stdout, '']);
  const recent = ['audit', '--who', caller.name, '--csv'];
  expect((await runCli([...recent, '--since', '10m'], { env })).stdout.split('\n')).toHaveLength(1102);
  expect((await runCli([...recent, '--until', '1w'], { env })).stdout.split('\n')).toHaveLength(2);
  expect((await runCli(['audit', '--until', '2000-01-01'], { env })).stdout.trim()).toBe(
    'AT  WHO  FROM  WHAT  OF  RESULT',
  );
  const wrong = async (...args: string[]) => {
    const { code, stdout, stderr } = await runCli(['audit', ...args], { env });
    return [code, stdout, stderr];
  };
  expect(await wrong('--since', 'soon')).toEqual([
    2,
    '',
    expect.stringContaining('or how long ago, such as 10m or 3d'),
  ]);
  expect(await wrong('--operation', 'setQuotas')).toEqual([
    2,
    '',
    'tapegate: --operation "setQuotas" is the name of nothing that is asked for: is it setQuota?\n',
  ]);
  expect(await wrong('--since', '2026-02-01', '--until', '2026-01-01')).toEqual([
    2,
    '',
    expect.stringMatching(/^tapegate: --until must be later than where it begins/),
  ]);
});
