/** The clients in TypeScript and Python: the package, its commands, and one session in both languages. */
import { execFileSync } from 'node:child_process';
import { lstatSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import path from 'node:path';
import { text } from 'node:stream/consumers';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { createClient } from '../../clients/typescript/client.js';
import { Incomplete, Unreachable } from '../../clients/typescript/errors.js';
import { packageRoot } from '../../src/core/package-root.js';
import { createToken } from '../../src/domain/access/tokens.js';
import { startApp, type TestApp } from '../support/app.js';
import { addQuota, addTaped } from '../support/factories.js';
import { createMemoryLibrary } from '../support/memory-library.js';
import { closeServer, findFreePort, listen } from '../support/ports.js';
import { cleanUp, type Result, serveHere, startProcess } from '../support/process.js';
import { findProgram } from '../support/run-example.js';
import { makeTempDir } from '../support/temp-dir.js';
import { createGate, type Gate } from '../support/wait.js';

const PYTHON = findProgram('python3');
if (!PYTHON) console.warn('python3 is missing: the tests of its client are skipped');
const PYTHON_CLIENT = path.join(packageRoot, 'clients/python');

const library = createMemoryLibrary();
let gate: Gate = createGate();
let app: TestApp;
/** A directory that contains only the installed package. */
let site: string;
let env: Record<string, string>;
let operator: Record<string, string>;

beforeAll(async () => {
  library.onRead = async (_volume, position) => {
    if (position % 10n > 2n) await gate.opened;
  };
  app = await startApp({ library, config: { access: { auth: new Set(['token']) } } });
  await addQuota(app.ctx, 'alice', 10n ** 17n);
  await addQuota(app.ctx, 'bob', 10n);
  const directories = ['typescript', 'python', 'command'];
  await addTaped(
    app.ctx,
    library,
    directories.flatMap((directory, f) =>
      [1, 2, 3, 4].map((n) => ({ path: `/${directory}/sst "${n}" ü.nc`, position: BigInt(10 * f + n), size: 1000 })),
    ),
  );
  const { secret } = await createToken(app.ctx, { name: 'alice', role: 'USER' });
  site = makeTempDir();
  env = { TAPEGATE_URL: app.url, TAPEGATE_TOKEN: secret, PYTHONDONTWRITEBYTECODE: '1', PYTHONUTF8: '1', HOME: site };
  const { secret: other } = await createToken(app.ctx, { name: 'root', role: 'OPERATOR' });
  operator = { ...env, TAPEGATE_TOKEN: other };
  installPackage();
});
afterAll(async () => {
  gate.open();
  await cleanUp();
  await app?.close();
});

function installPackage(): void {
  const run = (program: string, args: string[], cwd: string) =>
    execFileSync(program, args, { cwd, encoding: 'utf8', stdio: ['ignore', 'pipe', 'inherit'] });
  run(process.execPath, ['clients/typescript/build.mjs'], packageRoot);
  const packed = run('npm', ['pack', '--silent', '--pack-destination', site], path.join(packageRoot, 'dist/client'));
  const flags = ['--silent', '--no-audit', '--no-fund', '--offline', '--prefix', site];
  run('npm', ['install', ...flags, path.join(site, packed.trim())], site);
}

const sizeOf = (dir: string): number =>
  readdirSync(dir, { recursive: true, encoding: 'utf8' }).reduce(
    (bytes, name) => bytes + lstatSync(path.join(dir, name)).size,
    0,
  );

const tapegateAs = async (who: Record<string, string>, ...args: string[]): Promise<Result> =>
  await startProcess(path.join(site, 'node_modules/.bin/tapegate'), args, { env: who }).ended;
const tapegate = (...args: string[]): Promise<Result> => tapegateAs(env, ...args);

test('the package has less than 5 MB, no dependencies, and no command that opens a database', async () => {
  expect(readdirSync(path.join(site, 'node_modules')).filter((name) => !name.startsWith('.'))).toEqual([
    'tapegate-client',
  ]);
  expect(sizeOf(path.join(site, 'node_modules'))).toBeLessThan(5_000_000);
  const { version } = JSON.parse(readFileSync(path.join(packageRoot, 'package.json'), 'utf8'));
  expect((await tapegate('--version')).stdout).toBe(`${version}\n`);
  for (const command of ['start', 'migrate', 'backup', 'archive', 'scan']) {
    expect([command, (await tapegate(command)).code]).toEqual([command, 2]);
  }
});

test('the commands of the package make, watch and show requests, and operate the site', async () => {
  gate.open();
  const asked = await tapegate('request', '--quota', 'alice', '--pattern', '/command/', '--watch');
  expect([asked.code, asked.stdout]).toEqual([0, expect.stringContaining('is completed: 4 files on disk')]);
  const id = /request (\d+)/.exec(asked.stdout)?.[1] ?? '';
  for (const args of [['ls', 'command'], ['show', id], ['plan', id], ['suspensions']]) {
    const { code, stdout, stderr } = await tapegate(...args);
    expect({ args, code, stderr, hasTold: stdout !== '' }).toEqual({ args, code: 0, stderr: '', hasTold: true });
  }
  const csv = path.join(site, 'rows.csv');
  writeFileSync(csv, 'path,size\n/x,1\n');
  const operating = [
    ['import', csv],
    ['quota', 'set', 'ann', '--size', '1G', '--email', 'ann@example.org'],
    ['doctor'],
    ['audit'],
  ];
  for (const args of operating) {
    const done = await tapegateAs(operator, ...args);
    expect({ args, code: done.code, stderr: done.stderr }).toEqual({ args, code: 0, stderr: expect.any(String) });
  }
  const { code, stderr } = await tapegate('doctor');
  expect({ code, stderr }).toEqual({ code: 1, stderr: expect.stringMatching(/may not|operator/) });
  expect((await tapegate('cancel', id)).code).toBe(0);
  expect((await tapegate('show', '999')).stderr).toBe(
    'tapegate: there is no request 999, or you are not allowed to see it\n',
  );
  gate = createGate();
});

test('the TypeScript client returns paths when files arrive, also after a restart of the gateway', async () => {
  const files = [1, 2].map((n) => ({ path: `/arrivals/${n}`, position: BigInt(39 + 2 * n), size: 1000 }));
  await addTaped(app.ctx, library, files);
  const port = String(await findFreePort());
  const serve = () =>
    serveHere({ DATABASE_URL: app.databaseUrl, DATA_DIR: app.dataDir, PORT: port, TAPEGATE_AUTH: 'token' });
  const gateway = await serve();
  const tapes = createClient({ url: `http://127.0.0.1:${port}`, token: env.TAPEGATE_TOKEN });
  const paths = ['/arrivals/1', '/arrivals/2', '/arrivals/none'];
  const arrivals = tapes.restore({ quota: 'alice', files: paths });
  expect((await arrivals.next()).value).toBe(`${app.restoreDir}/arrivals/1`);
  await gateway.stop();
  gate.open();
  const next = await serve();
  expect((await arrivals.next()).value).toBe(`${app.restoreDir}/arrivals/2`);
  await expect(arrivals.next()).rejects.toThrow(Incomplete);
  await next.stop();
  gate = createGate();
});

/** A session that prints lines of JSON. NAME is the directory of the requested files. */
const PYTHON_SESSION = `
import json, sys, threading
from tapegate import *
NAME = sys.argv[1]
def tell(*values): print(json.dumps(values, ensure_ascii=False, separators=(",", ":")), flush=True)
def refused(call):
    try: tell("done", call())
    except Refused as error: tell("refused", error.code, {name: error.failure[name] for name in ("field", "requested", "available") if name in error.failure})
tapes = Tapegate()
tell("files", [[each["path"], each["size"]] for each in tapes.files("/%s/" % NAME)])
priced = tapes.estimate("alice", pattern="/%s/" % NAME)
tell("estimate", priced["fileCount"], priced["bytes"], priced["filesOnDisk"], priced["hasRoom"])
made = tapes.create_request("alice", pattern="/%s/" % NAME, label="session")
id = made["requestId"]
tell("made", made["label"], made["filesTotal"], made["bytesTotal"])
last = None
for step in tapes.follow(id):
    if step["filesOnDisk"] != last: tell("step", step["filesOnDisk"])
    last = step["filesOnDisk"]
    state = step["state"]
tell("ended", state)
tell("paths", sorted(tapes.restored_paths(id)))
tell("update", tapes.update(id, label="changed", retention="2099-01-01T00:00:00Z")["label"])
now = tapes.request(id)
tell("request", now["label"], now["retention"][:4], now["bytesOnDisk"])
tell("request_files", sorted([each["state"], each["size"]] for each in tapes.request_files(id)))
tell("released", tapes.release(id, match='"1"')["bytesOnDisk"])
tell("mine", any(each["requestId"] == id for each in tapes.requests(quota="alice", states=["COMPLETED"])))
tell("cancelled", tapes.cancel(id)["state"])
try:
    tell("paths", list(tapes.restored_paths(id)))
except NotOnDisk as error:
    tell("lost", len(error.paths), str(error).replace("request %d" % id, "request ID"))
tell("quota", tapes.quota("alice")["size"], tapes.quota("nobody"))
tell("none", tapes.request(999999))
refused(lambda: tapes.create_request("bob", pattern="/%s/" % NAME))
refused(lambda: tapes.create_request("nobody", pattern="/%s/" % NAME))
refused(lambda: tapes.create_request("alice"))
refused(lambda: tapes.cancel(999999))
refused(lambda: tapes.query("{ nonsense }"))
refused(lambda: Tapegate(token="tg_nonsense").quota("alice"))
try: Tapegate("http://127.0.0.1:1").quota("alice")
except OSError: tell("unreachable")
`;

const TYPESCRIPT_SESSION = `
import { CallerDocument, EstimateRequestDocument, RequestsDocument, unwrap } from 'tapegate-client';
import { createClient, NotOnDisk, Refused, Unreachable, type Estimate, type Progress } from 'tapegate-client';
const NAME = process.argv[2] ?? '';
const integers = (_: string, value: unknown) => (typeof value === 'bigint' ? Number(value) : value === undefined ? null : value);
const tell = (...values: unknown[]) => console.log(JSON.stringify(values, integers));
async function all<Value>(values: AsyncIterable<Value>): Promise<Value[]> {
  const list: Value[] = [];
  for await (const value of values) list.push(value);
  return list;
}
async function refused(call: () => Promise<unknown>): Promise<void> {
  try {
    tell('done', await call());
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    const named = ['field', 'requested', 'available'].filter((name) => name in error.failure);
    tell('refused', error.code, Object.fromEntries(named.map((name) => [name, error.failure[name]])));
  }
}
const tapes = createClient();
const pattern = \`/\${NAME}/\`;
tell('files', (await all(tapes.files(pattern))).map((each) => [each.path, each.size]));
const priced: Estimate = await tapes.estimate({ quota: 'alice', pattern });
const bytes: bigint = priced.bytes;
tell('estimate', priced.fileCount, bytes, priced.filesOnDisk, priced.hasRoom);
const made = await tapes.createRequest({ quota: 'alice', pattern, label: 'session' });
const id: number = made.requestId;
tell('made', made.label, made.filesTotal, made.bytesTotal);
let last: Progress | undefined;
for await (const step of tapes.follow(id)) {
  if (step.filesOnDisk !== last?.filesOnDisk) tell('step', step.filesOnDisk);
  last = step;
}
tell('ended', last?.state);
tell('paths', (await all(tapes.restoredPaths(id))).sort());
tell('update', (await tapes.extend(id, '2099-01-01T00:00:00Z'), await tapes.update({ requestId: id, label: 'changed' })).label);
const now = await tapes.request(id);
tell('request', now?.label, now?.retention.slice(0, 4), now?.bytesOnDisk);
tell('request_files', (await all(tapes.requestFiles(id))).map((each) => [each.state, each.size]).sort());
tell('released', (await tapes.release(id, { match: '"1"' })).bytesOnDisk);
tell('mine', (await all(tapes.requests({ quota: 'alice', states: ['COMPLETED'] }))).some((each) => each.requestId === id));
tell('cancelled', (await tapes.cancel(id)).state);
try {
  tell('paths', await all(tapes.restoredPaths(id)));
} catch (error) {
  if (!(error instanceof NotOnDisk)) throw error;
  tell('lost', error.paths.length, error.message.replace('request ' + id, 'request ID'));
}
tell('quota', (await tapes.quota('alice'))?.size, await tapes.quota('nobody'));
tell('none', await tapes.request(999999));
await refused(() => tapes.createRequest({ quota: 'bob', pattern }));
await refused(() => tapes.createRequest({ quota: 'nobody', pattern }));
await refused(() => tapes.createRequest({ quota: 'alice' }));
await refused(() => tapes.cancel(999999));
const { list } = await tapes.query(RequestsDocument, { states: ['CANCELLED'], first: 1 });
const labels: string[] | undefined = list?.edges.map(({ node }) => node.label);
tell('typed', labels?.length, (await tapes.query(CallerDocument)).caller.name);
tell('unwrapped', unwrap((await tapes.query(EstimateRequestDocument, { input: { quota: 'alice', pattern } })).result).fileCount);
await refused(() => tapes.query('{ nonsense }'));
await refused(() => createClient({ token: 'tg_nonsense' }).quota('alice'));
try {
  await createClient({ url: 'http://127.0.0.1:1' }).quota('alice');
} catch (error) {
  if (error instanceof Unreachable) tell('unreachable');
}
`;

/** Compiles the session against the types of the package. */
function compileSession(): string {
  const file = path.join(site, 'session.mts');
  writeFileSync(file, TYPESCRIPT_SESSION);
  const types = path.join(packageRoot, 'node_modules/@types');
  const strict = ['--strict', '--skipLibCheck', '--exactOptionalPropertyTypes'];
  const flags = ['--module', 'nodenext', '--target', 'es2022', ...strict, '--typeRoots', types, '--types', 'node'];
  execFileSync(path.join(packageRoot, 'node_modules/.bin/tsc'), [...flags, file], {
    cwd: site,
    stdio: ['ignore', 'inherit', 'inherit'],
  });
  return path.join(site, 'session.mjs');
}

/**
 * Runs a session, and restarts the gateway while two files are missing.
 * @returns the printed lines, with NAME for the directory
 */
async function runSession(name: string, program: string, args: string[]): Promise<unknown[]> {
  gate = createGate();
  const port = await findFreePort();
  const serve = () =>
    serveHere({ DATABASE_URL: app.databaseUrl, DATA_DIR: app.dataDir, PORT: String(port), TAPEGATE_AUTH: 'token' });
  const gateway = await serve();
  const session = startProcess(program, [...args, name], {
    cwd: PYTHON_CLIENT,
    env: { ...env, TAPEGATE_URL: `http://127.0.0.1:${port}` },
  });
  await session.waitForOutput(/\["step",2\]\n/);
  await gateway.stop();
  gate.open();
  const next = await serve();
  const { code, stdout, stderr } = await session.ended;
  await next.stop();
  expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
  return stdout
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line.replaceAll(`/${name}/`, '/NAME/')));
}

const paths = [1, 2, 3, 4].map((n) => `/NAME/sst "${n}" ü.nc`);

/** The expected lines after the progress steps. The number of steps depends on how many files arrive together. */
const expected = (language: string) => [
  ['files', paths.map((each) => [each, 1000])],
  ['estimate', 4, 4000, 0, true],
  ['made', 'session', 4, 4000],
  ['ended', 'COMPLETED'],
  ['paths', paths.map((each) => `${app.restoreDir}${each}`)],
  ['update', 'changed'],
  ['request', 'changed', '2099', 4000],
  ['request_files', paths.map(() => ['ON_DISK', 1000])],
  ['released', 3000],
  ['mine', true],
  ['cancelled', 'CANCELLED'],
  ['lost', 3, '3 files of request ID are released because the request is cancelled'],
  ['quota', 1e17, null],
  ['none', null],
  ['refused', 'FORBIDDEN', {}],
  ['refused', 'FORBIDDEN', {}],
  ['refused', 'INVALID_INPUT', { field: 'pattern' }],
  ['refused', 'NOT_FOUND', {}],
  ...(language === 'typescript'
    ? [
        ['typed', 1, 'alice'],
        ['unwrapped', 4],
      ]
    : []),
  ['refused', 'GRAPHQL_VALIDATION_FAILED', {}],
  ['refused', 'UNAUTHENTICATED', {}],
  ['unreachable'],
];

const isStep = (line: unknown): line is [string, number] => (line as unknown[])[0] === 'step';

test.each([
  ['typescript', () => [process.execPath, compileSession()]],
  ...(PYTHON ? [['python', () => [PYTHON, '-c', PYTHON_SESSION]] as const] : []),
] as const)('the session in %s goes on over a restart of the gateway', async (language, prepare) => {
  const [program, ...args] = prepare();
  const lines = await runSession(language, program ?? '', args);
  expect(lines.filter((line) => !isStep(line))).toEqual(expected(language));
  const steps = lines.filter(isStep).map(([, filesOnDisk]) => filesOnDisk);
  expect(steps).toEqual([...new Set(steps)].sort());
});

test.each([302, 307])('no client follows a redirect with status %i, or sends its token there', async (status) => {
  const visited: unknown[] = [];
  const other = createServer((req, res) => {
    visited.push(req.url);
    res.end('{"data":{}}');
  });
  const port = await listen(other);
  const location = `http://127.0.0.1:${port}/graphql`;
  const server = createServer((_req, res) => res.writeHead(status, { location }).end());
  const url = `http://127.0.0.1:${await listen(server)}`;
  await expect(createClient({ url, token: 'secret' }).quota('alice')).rejects.toThrow();
  if (PYTHON) {
    const quota = startProcess(PYTHON, ['tapegate.py', 'quota', 'alice'], {
      cwd: PYTHON_CLIENT,
      env: { ...env, TAPEGATE_URL: url },
    });
    expect(await quota.ended).toMatchObject({
      code: 1,
      stderr: expect.stringContaining(`responds with status ${status} and an unexpected redirect to ${location}`),
    });
  }
  expect(visited).toEqual([]);
  for (const each of [other, server]) await closeServer(each);
});

test('an answer that breaks off is no refusal, since a change may have been made', async () => {
  const server = createServer(async (req, res) => {
    await text(req); // otherwise, the connection might be reset before the client reads the answer
    res.writeHead(200, { 'Content-Length': 5000 });
    res.write('{"data":{"quota":nu', () => res.destroy());
  });
  const url = `http://127.0.0.1:${await listen(server)}`;
  await expect(createClient({ url }).quota('alice')).rejects.toThrow(Unreachable);
  if (PYTHON) {
    const run = (...args: string[]) =>
      startProcess(PYTHON, ['tapegate.py', ...args], { cwd: PYTHON_CLIENT, env: { ...env, TAPEGATE_URL: url } }).ended;
    const problem = `tapegate: ${url} cannot be reached: the response ended early`;
    expect(await run('quota', 'alice')).toMatchObject({ code: 4, stderr: `${problem}\n` });
    expect(await run('request', '--quota', 'alice', '--pattern', '/a')).toMatchObject({
      code: 1,
      stderr: `${problem}: the server may have made the change: check whether it did before you repeat the command\n`,
    });
  }
  await closeServer(server);
});

test('if the answer to createRequest is lost, the clients repeat the call with the same key', async () => {
  const keys: string[] = [];
  const request = { requestId: 7 };
  const server = createServer(async (req, res) => {
    const { variables } = JSON.parse(await text(req));
    keys.push(variables.input.idempotencyKey);
    if (keys.length % 2 === 1) return void req.socket.destroy();
    res.setHeader('Content-Type', 'application/json');
    const answer = { createRequest: { request, errors: [] }, result: { value: request, errors: [] } };
    res.end(JSON.stringify({ data: answer }));
  });
  const url = `http://127.0.0.1:${await listen(server)}`;
  expect(await createClient({ url }).createRequest({ quota: 'alice', pattern: '/a' })).toEqual({ requestId: 7 });
  if (PYTHON) {
    const program = `from tapegate import *\nprint(Tapegate().create_request("alice", files=iter(["/a"])))`;
    const run = startProcess(PYTHON, ['-c', program], { cwd: PYTHON_CLIENT, env: { ...env, TAPEGATE_URL: url } });
    expect(await run.ended).toEqual({ code: 0, stdout: "{'requestId': 7}\n", stderr: '' });
  }
  const first = keys.filter((_, n) => n % 2 === 0);
  expect([new Set(first).size, keys]).toEqual([first.length, first.flatMap((key) => [key, key])]);
  await closeServer(server);
});
