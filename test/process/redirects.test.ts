/** A server that leads elsewhere: no client shows its token there, or says what it asks for. */
import { once } from 'node:events';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import path from 'node:path';
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import { createClient } from '../../clients/typescript/client.js';
import { packageRoot } from '../../src/package-root.js';
import { startProcess } from '../support/process.js';
import { findProgram } from '../support/run-example.js';

const PYTHON = findProgram('python3');
const asked: string[] = [];
let status = 307;
const other = createServer((req, res) => {
  asked.push(`${req.method} ${req.url}`);
  res.end('{"data":{}}');
});
const server = createServer((req, res) => {
  res.writeHead(status, { location: `${urlOf(other)}${req.url}` }).end();
});
const urlOf = (of: Server) => `http://127.0.0.1:${(of.address() as AddressInfo).port}`;

beforeAll(async () => {
  for (const each of [other, server]) await once(each.listen(0, '127.0.0.1'), 'listening');
});
beforeEach(() => {
  asked.length = 0;
});
afterAll(() => {
  for (const each of [other, server]) each.close();
});

test.each([302, 307])('the client in TypeScript is not led elsewhere by %i', async (given) => {
  status = given;
  const tapes = createClient({ url: urlOf(server), token: 'secret' });
  await expect(tapes.quota('alice')).rejects.toThrow();
  expect(asked).toEqual([]);
});

test.runIf(PYTHON).each([302, 307])('the client in Python is not led elsewhere by %i', async (given) => {
  status = given;
  const env = { TAPEGATE_URL: urlOf(server), TAPEGATE_TOKEN: 'secret', PYTHONDONTWRITEBYTECODE: '1' };
  const run = startProcess(PYTHON ?? '', ['tapegate.py', 'quota', 'alice'], {
    cwd: path.join(packageRoot, 'clients/python'),
    env,
  });
  expect(await run.ended).toMatchObject({ code: 1, stderr: expect.stringContaining(`answers ${given}`) });
  expect(asked).toEqual([]);
});
