/** How `request --watch`, `watch` and `show` show the progress of a request. */
import path from 'node:path';
import { pathToFileURL } from 'node:url';
import { afterAll, expect, test } from 'vitest';
import { packageRoot } from '../../src/core/package-root.js';
import { startEngine } from '../../src/engine/runner.js';
import { startGateway } from '../../src/main/app.js';
import { startApp } from '../support/app.js';
import { addQuota, addTaped } from '../support/factories.js';
import { createMemoryLibrary } from '../support/memory-library.js';
import { cleanUp, cliFile, runCli, startCli, startCommand, startProcess } from '../support/process.js';
import { findProgram } from '../support/run-example.js';
import { readScreen } from '../support/screen.js';
import { resume, suspend } from '../support/suspend.js';
import { useApp } from '../support/use-app.js';
import { createGate, waitFor } from '../support/wait.js';

const library = createMemoryLibrary();
let env: Record<string, string>;

const app = useApp({ library }, async () => {
  env = { TAPEGATE_URL: app.url, TAPEGATE_TOKEN: app.token, TERM: 'xterm' };
  await addQuota(app.ctx, 'ann', 100_000_000n);
});
afterAll(cleanUp);

/**
 * Puts files on two volumes. Separate gates block reads of the first file and of the other files. `held` contains the
 * volumes that are being read.
 */
async function addHeld(
  top: string,
  count: number,
): Promise<{ held: Set<string>; letFirstGo(): void; letAllGo(): void }> {
  const [first, others] = [createGate(), createGate()];
  const held = new Set<string>();
  const { onRead } = library;
  library.onRead = async (volume, position, bytes) => {
    held.add(volume);
    if (volume === `FIRST${top}`) await first.opened;
    if (volume === `OTHERS${top}`) await others.opened;
    return await onRead(volume, position, bytes);
  };
  const files = Array.from({ length: count }, (_, n) => ({ path: `${top}/${n}`, size: 1000 }));
  await addTaped(
    app.ctx,
    library,
    files.map((file, n) => ({ ...file, volume: `${n === 0 ? 'FIRST' : 'OTHERS'}${top}` })),
  );
  const letAllGo = () => {
    first.open();
    others.open();
  };
  return { held, letFirstGo: first.open, letAllGo };
}

test('in a terminal, request --watch draws a bar that grows', async () => {
  const { letFirstGo, letAllGo } = await addHeld('/bar', 4);
  const running = startCommand(['request', '--quota', 'ann', '--pattern', '/bar/', '--watch'], { env, columns: 120 });
  await running.waitForOutput(/0\/4 files/);
  letFirstGo();
  await running.waitForOutput(/1\/4 files {2}1\.00 kB of 4\.00 kB {2}\S+ \S+\/s {2}(?:\d+ s elapsed {2})?\d+ \w+ left/);
  letAllGo();
  const { code, stdout } = await running.ended;
  expect(code).toBe(0);
  expect(stdout).toMatch(/^request \d+: 4 files, 4\.00 kB, kept until \S+ \S+ \(in 5 days\)\n/);
  expect(stdout).toMatch(/\u2588+\u2591+ 25% {2}1\/4 files/);
  expect(stdout).toMatch(
    /\u2588{30} 100% {2}4\/4 files {2}4\.00 kB of 4\.00 kB {2}\S+ \S+\/s {2}(?:\d+ s elapsed {2})?done/,
  );
  expect(stdout).toMatch(
    /\nrequest \d+ is completed: 4 files on disk, 4\.00 kB\nrestored below \S+, each at its archive path\n$/,
  );
});

test.skipIf(!findProgram('script'))('Ctrl-C ends a watch at once, and does not change the request', async () => {
  const { letAllGo } = await addHeld('/interrupt', 2);
  const command = `stty cols 120; "${process.execPath}" "${cliFile}" request --quota ann --pattern /interrupt/ --watch`;
  const running = startProcess('script', ['-qec', command, '/dev/null'], { env, stdin: null });
  await running.waitForOutput(/0\/2 files/);
  running.child.stdin?.write('\u0003');
  const { code, stdout } = await running.ended;
  expect(code).toBe(130);
  letAllGo();
  const [, id = ''] = /request (\d+)/.exec(stdout) ?? [];
  expect(stdout).toContain(
    `\r\nrequest ${id} continues: "tapegate watch ${id}" shows it again, "tapegate cancel ${id}" ends it\r\n`,
  );
  expect(await runCli(['watch', id], { env })).toMatchObject({ code: 0 });
});

test('without a terminal, a watch writes plain lines', async () => {
  const { letAllGo } = await addHeld('/plain', 2);
  const running = startCommand(['request', '--quota', 'ann', '--pattern', '/plain/', '--watch'], { env });
  await waitFor(
    'the bar',
    async () => running.stderr().includes('0/2 files') || running.stderr().includes('1/2 files'),
  );
  letAllGo();
  const { code, stdout, stderr } = await running.ended;
  expect(code).toBe(0);
  expect(stdout).toMatch(
    /^request (\d+): 2 files, 2\.00 kB, kept until \S+\nrequest \1 is completed: 2 files on disk, 2\.00 kB\nrestored below \S+, each at its archive path\n$/,
  );
  expect(stderr).toContain('100%  2/2 files  2.00 kB of 2.00 kB');
  expect(stderr).not.toContain('\u001b');
  const written = stderr.split('\n');
  expect(written).toEqual([...new Set(written)]);
});

test('a watch on a host whose clock is a day behind estimates no end that is a day away', async () => {
  const { held, letAllGo } = await addHeld('/busy', 2);
  const busy = await runCli(['request', '--quota', 'ann', '--pattern', '/busy/'], { env });
  expect(busy.code).toBe(0);
  await waitFor('both drives to read', async () => held.has('FIRST/busy') && held.has('OTHERS/busy'));
  await addTaped(app.ctx, library, [{ path: '/clock/a', size: 1000, volume: 'CLOCK' }]);
  const preload = pathToFileURL(path.join(packageRoot, 'test/support/shifted-clock.mjs')).href;
  const behind = { ...env, NODE_OPTIONS: `--import=${preload}`, CLOCK_SECONDS: '-86400' };
  const running = startCli(['request', '--quota', 'ann', '--pattern', '/clock/', '--watch'], { env: behind });
  try {
    await waitFor('what the plan says', async () => /waiting; CLOCK: /.test(running.stderr()));
  } finally {
    letAllGo();
  }
  const { code, stderr } = await running.ended;
  expect([code, /in about \d+(?:\.\d)? (?:h|days) /.test(stderr)]).toEqual([0, false]);
});

test('a watch reports why a request does not go on, and no time left, also on a terminal of 80 columns', async () => {
  const { letFirstGo, letAllGo } = await addHeld('/kept', 4);
  await suspend(app, { kind: 'VOLUME', name: 'OTHERS/kept', mode: 'DRAINING', reason: 'cleaning' });
  const args = ['request', '--quota', 'ann', '--pattern', '/kept/', '--watch'];
  const [plain, terminal] = [startCommand(args, { env }), startCommand(args, { env, columns: 80 })];
  letFirstGo();
  const lines = () =>
    plain
      .stderr()
      .split('\n')
      .filter((line) => line.includes('1/4 files  1.00 kB of 4.00 kB'));
  const reason = /waiting; OTHERS\/kept: the volume is draining: cleaning/;
  await waitFor('the reason', async () => lines().some((line) => reason.test(line)));
  const first = lines().findIndex((line) => reason.test(line));
  expect(
    lines()
      .slice(first)
      .filter((line) => !reason.test(line)),
  ).toEqual([]);
  await terminal.waitForOutput(/waiting; OTHERS\/kept: the volume is draining: cleaning\n/);
  await terminal.waitForOutput(
    /\u2588+\u2591+ 25% {2}1\/4 files {2}1\.00 kB of 4\.00 kB {2}\S+ \S+\/s {2}(?:\d+ s elapsed {2})?waiting/,
  );
  await resume(app, 'VOLUME', 'OTHERS/kept');
  letAllGo();
  for (const running of [plain, terminal]) expect(await running.ended).toMatchObject({ code: 0 });
  expect(readScreen((await terminal.ended).stdout).filter((line) => line.includes('waiting;'))).toEqual([]);
});

test('a watch that began before an engine started shows the time left when it is known', async () => {
  const idle = await startApp();
  const store = createMemoryLibrary();
  const gate = createGate();
  await addQuota(idle.ctx, 'ann', 100_000_000n);
  await addTaped(idle.ctx, store, [
    { path: '/late/a', size: 1000, volume: 'FIRST' },
    { path: '/late/b', size: 1000, volume: 'OTHER' },
  ]);
  store.onRead = async (volume) => {
    if (volume === 'OTHER') await gate.opened;
  };
  const server = { env: { ...env, TAPEGATE_URL: idle.url, TAPEGATE_TOKEN: idle.token }, columns: 120 };
  const running = startCommand(['request', '--quota', 'ann', '--pattern', '/late/', '--watch'], server);
  await running.waitForOutput(/0\/2 files/);
  const engine = await startEngine(idle.ctx, store, { drainMs: 200 });
  await running.waitForOutput(/1\/2 files .*\d+ \w+ left/);
  gate.open();
  expect(await running.ended).toMatchObject({ code: 0 });
  await engine.stop();
  await idle.close();
});

test('show reports why files wait that were never tried', async () => {
  const { letAllGo } = await addHeld('/undriven', 2);
  letAllGo();
  const drives = ['drive-1', 'drive-2'];
  for (const name of drives) await suspend(app, { kind: 'DRIVE', name, mode: 'IMMEDIATE', reason: 'cleaning' });
  const { stdout } = await runCli(['request', '--quota', 'ann', '--pattern', '/undriven/', '--json'], { env });
  const id = String(JSON.parse(stdout).requestId);
  expect((await runCli(['show', id], { env })).stdout).toMatch(
    /\nWAITING +all drives of library directory are suspended or draining \(2 files\)\n/,
  );
  for (const name of drives) await resume(app, 'DRIVE', name);
  expect(await runCli(['watch', id], { env })).toMatchObject({ code: 0 });
});

test('a watch reports an outage once, and still reports why the request waits', async () => {
  const { letFirstGo, letAllGo } = await addHeld('/outage', 2);
  letFirstGo();
  await suspend(app, { kind: 'VOLUME', name: 'OTHERS/outage', mode: 'DRAINING', reason: 'cleaning' });
  const first = await startGateway(app.ctx);
  const server = { env: { ...env, TAPEGATE_URL: first.url } };
  const plain = startCommand(['request', '--quota', 'ann', '--pattern', '/outage/', '--watch'], server);
  const reason = /1\/2 files .*waiting; OTHERS\/outage: the volume is draining: cleaning\n/;
  await waitFor('the reason', async () => reason.test(plain.stderr()));
  const [, id = ''] = await plain.waitForOutput(/request (\d+): /);
  const json = startCommand(['watch', id, '--json'], server);
  await json.waitForOutput(/"filesOnDisk":1/);
  await first.close();
  const outage = `no response from ${first.url}; trying again
`;
  for (const running of [plain, json]) await waitFor('the outage', async () => running.stderr().includes(outage));
  const port = Number(new URL(first.url).port);
  const second = await startGateway({ ...app.ctx, config: { ...app.ctx.config, port } });
  await resume(app, 'VOLUME', 'OTHERS/outage');
  letAllGo();
  const { code, stderr } = await plain.ended;
  expect(code).toBe(0);
  const [before = '', after, ...others] = stderr.split(outage);
  expect(before).toMatch(reason);
  expect(after).toMatch(/2\/2 files/);
  expect(others).toEqual([]);
  const unexplained = stderr.split('\n').filter((line) => line.includes('1/2 files') && !line.includes('waiting; '));
  expect(unexplained.length).toBeLessThanOrEqual(1); // the command prints the first line before it knows the reason
  expect(await json.ended).toMatchObject({ code: 0, stderr: outage });
  await second.close();
});

test('a watch survives a server that goes away and comes back', async () => {
  const { letAllGo } = await addHeld('/away', 1);
  const first = await startGateway(app.ctx);
  const watching = startCommand(['request', '--quota', 'ann', '--pattern', '/away/', '--watch'], {
    env: { ...env, TAPEGATE_URL: first.url },
  });
  await waitFor('the bar', async () => watching.stderr().includes('0/1 file '));
  await first.close();
  letAllGo();
  const port = Number(new URL(first.url).port);
  const second = await startGateway({ ...app.ctx, config: { ...app.ctx.config, port } });
  expect(await watching.ended).toMatchObject({
    code: 0,
    stdout: expect.stringMatching(
      /is completed: 1 file on disk, 1\.00 kB\nrestored below \S+, each at its archive path\n$/,
    ),
  });
  await second.close();
});
