/**
 * The applications in test/clients/applications, on a gateway that requires tokens, with the demo archive. Each
 * application runs as a user. The library is suspended until an application has shown the first state of its request,
 * so that each application sees the request change.
 */
import { execFileSync } from 'node:child_process';
import { readFileSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import { createToken } from '../../src/domain/access/tokens.js';
import { createRequest } from '../../src/domain/requests/create.js';
import { type Engine, startEngine } from '../../src/engine/runner.js';
import { archiveDemo, makeDemo } from '../../src/main/demo.js';
import { createDirectoryLibrary } from '../../src/tape/directory/index.js';
import { startApp, type TestApp } from '../support/app.js';
import { applications, compileApplications, installApplications } from '../support/applications.js';
import { useBrowser } from '../support/chromium.js';
import { cleanUp, type Running, startProcess } from '../support/process.js';
import { type Relay, startRelay } from '../support/relay.js';
import { resume, suspend } from '../support/suspend.js';
import { createGate } from '../support/wait.js';

const openWindow = useBrowser();
let app: TestApp;
let engine: Engine;
let relay: Relay;
let token: string;
let missing: string | undefined;

beforeAll(async () => {
  missing = installApplications();
  if (missing) return console.warn(`${missing}: the applications are skipped`);
  compileApplications();
  app = await startApp({ config: { access: { auth: new Set(['token'] as const) } } });
  const library = createDirectoryLibrary(path.join(app.dataDir, 'library'));
  await makeDemo(app.ctx, () => archiveDemo(app.ctx, library));
  engine = await startEngine(app.ctx, library, { drainMs: 200 });
  relay = await startRelay(app.url);
  token = (await createToken(app.ctx, { name: 'alice', role: 'USER' })).secret;
  // requests without files, for the lists
  for (const label of ['one', 'two', 'three'])
    await createRequest(app.ctx, { quota: 'alice', files: [`/later/${label}`], label });
}, 600_000);
afterAll(async () => {
  await cleanUp();
  await relay?.close();
  await engine?.stop();
  await app?.close();
});
beforeEach(({ skip }) => skip(missing !== undefined, missing));

/** Starts an application. */
function start(file: string, { args = [] as string[], url = app.url } = {}): Running {
  const env = { TAPEGATE_URL: url, TAPEGATE_TOKEN: token };
  return startProcess(process.execPath, [path.join(applications, file), ...args], { env });
}

/** Returns the lines of the standard output, at the end of an application. */
async function linesOf(running: Running): Promise<string[]> {
  const { code, stdout, stderr } = await running.ended;
  expect({ code, stderr }).toEqual({ code: 0, stderr: '' }); // the libraries print warnings to the standard error
  return stdout.trimEnd().split('\n');
}

/**
 * Runs an application to its end.
 * @param options.until output after which the library continues
 * @returns the lines of the standard output
 */
async function run(file: string, { args = [] as string[], until = undefined as RegExp | undefined } = {}) {
  if (until) await suspend(app, { kind: 'LIBRARY', name: 'directory', mode: 'DRAINING' });
  const running = start(file, { args });
  try {
    if (until) await running.waitForOutput(until);
  } finally {
    if (until) await resume(app, 'LIBRARY', 'directory');
  }
  return await linesOf(running);
}

test('Apollo Client shows the fields that the user may read, adds up pages, and reads errors in a payload', async () => {
  expect(await run('dist/apollo.js')).toEqual([
    'caller: alice, quota: 100000000, tokens: null',
    'error at tokens: FORBIDDEN',
    'requests: three, two, one',
    'created: null',
    expect.stringMatching(/^INVALID_INPUT: maxFiles is 1, but the request would contain 8 files/),
  ]);
});

test('Relay keeps a connection of two pages up to date by an appended node and a subscription', async () => {
  const lines = await run('relay/dist/requests.js', { args: ['/demo/ocean/2023/'], until: /relay QUEUED 0/ });
  const [two, three] = [
    'list: one COMPLETED 0, two COMPLETED 0',
    'list: one COMPLETED 0, two COMPLETED 0, three COMPLETED 0',
  ];
  expect(lines.slice(0, 3)).toEqual([two, three, `${three}, relay QUEUED 0`]);
  expect(lines.slice(-2)).toEqual([`${three}, relay COMPLETED 8`, 'node: relay of alice']);
});

test('urql updates a cached list after a mutation and a subscription, without warnings', async () => {
  const lines = await run('dist/urql.js', { args: ['/demo/ocean/2024/'], until: /newest: urql QUEUED 0/ });
  const counts = lines.map((line) => Number.parseInt(line, 10));
  expect(counts.at(-1)).toBe(Number(counts[0]) + 1);
  expect(lines.at(-1)).toMatch(/newest: urql COMPLETED 8$/);
});

test('typed documents of graphql-codegen have the types of the schema', async () => {
  expect(await run('dist/typed-documents.js')).toEqual([
    expect.stringMatching(/^alice uses \d+ of 100000000 bytes$/),
    '8 files',
    expect.stringMatching(/^\/demo\/ocean\/2023\/sst_202301\.nc: 1500000 bytes, \w+, on TG\d+$/),
    expect.stringMatching(/sst_202302/),
    expect.stringMatching(/sst_202303/),
  ]);
});

test.each([
  [
    'a field that the fragment does not select',
    '{ path, size, stage, volume }',
    '{ path, size, stage, volume, position }',
    'position',
  ],
  ['a variable of the wrong type', "user: 'alice'", 'user: 1', 'string'],
])('%s does not compile', (_case, right, wrong, message) => {
  const text = readFileSync(path.join(applications, 'typed-documents.ts'), 'utf8');
  expect(text).toContain(right);
  const file = path.join(applications, `wrong-${process.pid}.ts`);
  writeFileSync(file, text.replace(right, wrong));
  const project = path.join(applications, `tsconfig-${process.pid}.json`);
  writeFileSync(project, JSON.stringify({ extends: './tsconfig.json', include: [path.basename(file)] }));
  try {
    const compile = () =>
      execFileSync('node_modules/.bin/tsc', ['--noEmit', '-p', project], { cwd: applications, encoding: 'utf8' });
    expect(compile).toThrow(expect.objectContaining({ stdout: expect.stringContaining(message) }));
  } finally {
    for (const written of [file, project]) rmSync(written);
  }
});

test('graphql-request sends a query and a mutation, and throws only errors outside payloads', async () => {
  expect(await run('dist/graphql-request.js')).toEqual([
    'estimate: 1 files, 1500000 bytes',
    'created: August, 1 files',
    expect.stringMatching(/^INVALID_INPUT: maxBytes is 1 byte/),
    'thrown: BAD_USER_INPUT',
  ]);
});

test.each([
  ['distinct connections', 'distinct', '/2025/sst_202501'],
  ['a single connection', 'single', '/2025/sst_202502'],
])('graphql-sse follows a request and its files over %s', async (_case, mode, pattern) => {
  const lines = await run('dist/graphql-sse.js', {
    args: [pattern, mode],
    until: /^(?=[\s\S]*QUEUED: )(?=[\s\S]*now ONTAPE)/,
  });
  const file = `/demo/ocean${pattern}.nc`;
  expect(lines).toEqual(expect.arrayContaining([`${file}: ONTAPE RESTORING`, `${file}: RESTORING RESTORED`]));
  expect(lines).toContain('COMPLETED: 1 of 1 files on disk');
  expect(lines.at(-1)).toBe('finished');
});

test('graphql-sse continues after the last event if a stream breaks', async () => {
  const shown = createGate();
  const watch = relay.watch({
    breaksAfter: shown.opened,
    onFirstMessage: () => void resume(app, 'LIBRARY', 'directory'),
  });
  await suspend(app, { kind: 'LIBRARY', name: 'directory', mode: 'DRAINING' });
  const running = start('dist/graphql-sse.js', { args: ['/2025/sst_202504'], url: relay.url });
  await running.waitForOutput(/^QUEUED: [\s\S]*now ONTAPE/m);
  shown.open();
  const lines = await linesOf(running);
  const [, last] = /"eventId":"(\d+)"/.exec(watch.first) ?? [];
  expect(watch.asked).toContainEqual(expect.stringContaining(`"after":"${last}"`));
  expect(lines.filter((line) => line.includes('.nc: '))).toEqual(
    ['now ONTAPE', 'ONTAPE RESTORING', 'RESTORING RESTORED'].map((to) => `/demo/ocean/2025/sst_202504.nc: ${to}`),
  );
  expect(lines).toContain('COMPLETED: 1 of 1 files on disk');
});

test('EventSource in a browser shows each event once until the request has finished, although the stream breaks', async () => {
  relay.page = readFileSync(path.join(applications, 'event-source.html'), 'utf8');
  await suspend(app, { kind: 'LIBRARY', name: 'directory', mode: 'DRAINING' });
  const shown = createGate();
  const watch = relay.watch({
    breaksAfter: shown.opened,
    onFirstMessage: () => void resume(app, 'LIBRARY', 'directory'),
  });
  const { page, faults } = await openWindow(`${relay.url}/page`, {
    httpCredentials: { username: 'alice', password: token },
  });
  await page.getByRole('textbox').fill('/2025/sst_202503');
  await page.getByRole('button').click();
  await page.getByText('QUEUED: ').waitFor();
  shown.open();
  await page.getByText('COMPLETED: 1 of 1 files on disk').waitFor();
  await page.locator('form.finished').waitFor();
  expect(watch.lastEventIds[1]).toMatch(/^\d+$/);
  const ids = await page.getByRole('listitem').allTextContents();
  expect(ids).toEqual([...new Set(ids)]);
  expect(faults).toEqual([]);
});
