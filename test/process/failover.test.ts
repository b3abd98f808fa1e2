/** A database of several servers: whoever is pointed at all of them works with the one that takes writes. */
import path from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { type DatabasePair, startDatabasePair } from '../support/database-pair.js';
import { cleanUp, type LocalServer, makeDataDir, runCli, serveHere } from '../support/process.js';
import { errorBody, makeRequest, post, readRequest } from '../support/rest.js';
import { isReady } from '../support/server.js';
import { waitFor } from '../support/wait.js';

const AWAY = 'the database does not answer: try again later';

let pair: DatabasePair;
let server: LocalServer;
let env: Record<string, string>;

beforeAll(async () => {
  const dir = makeDataDir();
  pair = await startDatabasePair(dir, 'tapes');
  env = { DATABASE_URL: pair.url, DATA_DIR: path.join(dir, 'data'), DEMO: 'off' };
  expect(await runCli(['migrate'], { env })).toMatchObject({ code: 0 });
  expect(await runCli(['quota', 'set', 'alice', '--size', '1T'], { env })).toMatchObject({ code: 0 });
  server = await serveHere(env);
});

afterAll(async () => {
  await cleanUp();
  await pair?.close();
});

const fields = (name: string) => ({ quota: 'alice', files: [`/failover/${name}`] });

test('the server that takes writes is found among several, whichever is named first', async () => {
  const id = await makeRequest(server, fields('before'));
  expect(await readRequest(server, id)).toMatchObject({ files: ['/failover/before'] });
});

test('where it is gone all are told to come again, and once its standby takes writes all goes on there', async () => {
  const id = await makeRequest(server, fields('kept'));
  await pair.catchUp();
  await pair.primary.refuse();
  await waitFor('the gateway to notice', async () => !(await isReady(server)));
  expect(await post(server, fields('refused'))).toMatchObject({ status: 503, body: errorBody(AWAY) });
  await pair.promote();
  await waitFor('the gateway to be back', () => isReady(server));
  expect(await readRequest(server, id)).toMatchObject({ files: ['/failover/kept'] });
  await makeRequest(server, fields('after'));
  expect(server.stderr()).toContain('the database is at another server');
});

test('two that take writes are none: what is written to the one that was cut off would be lost', async () => {
  await pair.primary.accept();
  const { code, stderr } = await runCli(['quota', 'list'], { env });
  expect([code, stderr]).toEqual([
    1,
    expect.stringMatching(/only one server may take writes, not 127\.0\.0\.1:\d+ and 127\.0\.0\.1:\d+/),
  ]);
  await pair.primary.refuse();
  expect(await runCli(['quota', 'list'], { env })).toMatchObject({ code: 0 });
  await makeRequest(server, fields('still'));
  expect((await server.stop()).code).toBe(0);
});
