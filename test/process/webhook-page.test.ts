/** The webhook commands, and the receivers in docs/reference/examples, run as printed. */
import { copyFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, expect, test } from 'vitest';
import { packageRoot } from '../../src/core/package-root.js';
import { addFiles, addQuota } from '../support/factories.js';
import { createMemoryLibrary } from '../support/memory-library.js';
import { findFreePort } from '../support/ports.js';
import { cleanUp, runCli, startProcess, stop } from '../support/process.js';
import { makeRequest } from '../support/rest.js';
import { findProgram, makeWorkDir } from '../support/run-example.js';
import { useApp } from '../support/use-app.js';
import { waitFor } from '../support/wait.js';

const examples = path.join(packageRoot, 'docs/reference/examples');

const app = useApp({ library: createMemoryLibrary(), config: { webhookHosts: ['127.0.0.1'] } }, async () => {
  await addQuota(app.ctx, 'ada', 10n ** 9n);
  await addFiles(app.ctx, [{ path: '/d/a', stage: 'ONDISK', size: 5n }]);
});
afterAll(cleanUp);

const run = (...args: string[]) => runCli(args, { env: { TAPEGATE_URL: app.url, TAPEGATE_TOKEN: app.token } });

const receivers = [
  { language: 'js', file: 'webhook-receiver.mjs', program: process.execPath },
  { language: 'python', file: 'webhook-receiver.py', program: findProgram('python3') },
];

test.each(receivers)(
  'the receiver in $language accepts signed messages only, and commands manage its webhook',
  async ({ language, file, program }) => {
    if (!program) return console.warn(`there is no program for ${language}: its receiver is not tested`);
    const dir = makeWorkDir();
    copyFileSync(path.join(examples, file), path.join(dir, file));
    const port = await findFreePort();
    const url = `http://127.0.0.1:${port}/hook`;
    const added = await run('webhook', 'add', url, '--quota', 'ada', '--event', 'request.completed', 'request.ended');
    expect(added.stderr).toMatch(/^webhook \d+ is created; the secret is not shown again\n$/);
    const id = /\d+/.exec(added.stderr)?.[0] ?? '';
    const env = { ...process.env, PORT: String(port), WEBHOOK_SECRET: added.stdout.trim() };
    const receiver = startProcess(program, [path.join(dir, file)], { env: env as Record<string, string>, cwd: dir });
    await waitFor('the receiver', async () => receiver.stdout().includes('listening'));
    const request = await makeRequest(app, { quota: 'ada', patterns: '/d/' });
    await waitFor('the message', async () => receiver.stdout().includes(`request.completed ${request}`));
    const forged = await fetch(url, {
      method: 'POST',
      body: '{"type":"request.completed","data":{"requestId":99}}',
      headers: {
        'webhook-id': 'msg_1',
        'webhook-timestamp': String(Math.floor(Date.now() / 1000)),
        'webhook-signature': 'v1,x',
      },
    });
    expect(forged.status).toBe(401);
    await run('cancel', String(request));
    await waitFor('the end', async () => receiver.stdout().includes(`request.ended ${request}`));
    expect(receiver.stdout()).not.toContain('99');
    const sent = (log: string) => log.split('\n').filter((line) => / sent /.test(line)).length;
    await waitFor('the answers', async () => sent((await run('webhook', 'log', id)).stdout) === 2);
    await stop(receiver);
    // the receiver has stopped
    expect((await run('webhook', 'test', id)).stdout).toBe(
      `a test message is waiting: "tapegate webhook log ${id}" shows the result\n`,
    );
    await waitFor('the failure', async () => (await run('webhook', 'log', id)).stdout.includes('ECONNREFUSED'));
    const log = await run('webhook', 'log', id);
    expect(log.stdout).toMatch(
      /^CREATED +TYPE +REQUEST +STATE +TRIES +NEXT +ERROR\n.*webhook.test +- +waiting +1 .*ECONNREFUSED/,
    );
    expect(sent(log.stdout)).toBe(2);
    expect((await run('webhook', 'list')).stdout).toMatch(
      /ada +http:\/\/127.0.0.1:\d+\/hook +1 +has been failing since .*: .*ECONNREFUSED/,
    );
    expect((await run('webhook', 'set', id, '--off')).stdout).toBe(`webhook ${id} is off: switched off\n`);
    expect(JSON.parse((await run('webhook', 'set', id, '--on', '--note', 'x', '--json')).stdout)).toMatchObject({
      isEnabled: true,
      note: 'x',
      events: ['REQUEST_COMPLETED', 'REQUEST_ENDED'],
    });
    expect((await run('webhook', 'rotate', id)).stdout).toMatch(/^whsec_/);
    expect((await run('webhook', 'remove', id)).stdout).toBe(`webhook ${id} is removed: ${url}\n`);
    expect((await run('webhook', 'list')).stdout).toBe('there are no webhooks\n');
  },
);

test.each([
  [['add', 'https://127.0.0.2/', '--quota', 'ada'], 2, /<url> must not point to a private network/],
  [['add', 'https://example.org/'], 2, /give --quota <user> or --all, or set "quota" in /],
  [['add', 'https://example.org/', '--all', '--quota', 'ada'], 2, /--all and --quota cannot be used together/],
  [
    ['add', 'https://example.org/', '--quota', 'ada', '--event', 'x'],
    2,
    /option '--event <events...>' argument 'x' is invalid. Allowed choices are request.started, /,
  ],
  [['set', '1'], 2, /nothing to change: give/],
  [['set', '1', '--on', '--off'], 2, /--on and --off cannot be used together/],
  [['set', '7', '--on'], 1, /there is no webhook with id 7/],
  [['log', '7'], 1, /there is no webhook with id 7/],
  [['test', 'x'], 2, /<id> must be a whole number, not "x"/],
])('webhook %j exits with %i', async (args, code, error) => {
  const result = await run('webhook', ...args);
  expect(result.code).toBe(code);
  expect(result.stderr).toMatch(error);
});
