/** TLS with certificate files, in gateways and commands. */
import { generateKeyPairSync } from 'node:crypto';
import { once } from 'node:events';
import { readdirSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import https from 'node:https';
import net from 'node:net';
import path from 'node:path';
import type { TLSSocket } from 'node:tls';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { startApp, type TestApp } from '../support/app.js';
import { type Certificate, makeCertificate } from '../support/certificate.js';
import { addQuota } from '../support/factories.js';
import { cleanUp, runCli, runProgram, serveHere } from '../support/process.js';
import { makeTempDir } from '../support/temp-dir.js';
import { waitFor, whenClosed } from '../support/wait.js';

const dir = makeTempDir();
const files = { tlsCert: path.join(dir, 'cert.pem'), tlsKey: path.join(dir, 'key.pem') };
const environment = { TAPEGATE_TLS_CERT: files.tlsCert, TAPEGATE_TLS_KEY: files.tlsKey };
let first: Certificate;
let app: TestApp;

/** Replaces a file atomically, as a certificate renewal does. */
function put(file: string, text: string): void {
  writeFileSync(`${file}.new`, text, { mode: 0o600 });
  renameSync(`${file}.new`, file);
}

beforeAll(async () => {
  first = makeCertificate();
  put(files.tlsCert, first.cert);
  put(files.tlsKey, first.key);
  app = await startApp({ config: files });
  await addQuota(app.ctx, 'alice', 1_000_000n);
});
afterAll(async () => {
  await app.close();
  await cleanUp();
  rmSync(dir, { recursive: true, force: true });
});

interface Response {
  status: number | undefined;
  headers: Record<string, unknown>;
  body: unknown;
  /** The serial number of the server's certificate. */
  serial: string;
}

/** Sends a request over a new connection. */
async function ask(
  target: string,
  options: https.RequestOptions & { ca: string; content?: string },
): Promise<Response> {
  const { content, ...rest } = options;
  const request = https.request(`${app.url}${target}`, { agent: false, ...rest }).end(content);
  const [response] = await once(request, 'response');
  const { serialNumber: serial } = (response.socket as TLSSocket).getPeerCertificate();
  let text = '';
  for await (const part of response) text += part;
  return { status: response.statusCode, headers: response.headers, body: JSON.parse(text), serial };
}

const REQUESTS = '/tape_control/api/v1/requests';

test('REST, GraphQL and health are served over TLS, with Strict-Transport-Security', async () => {
  expect(app.url).toMatch(/^https:\/\/127\.0\.0\.1:\d+$/);
  const ca = first.cert;
  const rest = await ask(REQUESTS, { ca });
  expect([rest.status, rest.body, rest.serial]).toEqual([200, [{ requests: [] }], first.serial]);
  expect(rest.headers['strict-transport-security']).toBe('max-age=15552000');
  expect((await ask('/graphql?query=%7B__typename%7D', { ca })).body).toEqual({ data: { __typename: 'Query' } });
  expect((await ask('/health/ready', { ca })).body).toEqual({ status: 'ready' });
  await expect(ask(REQUESTS, { ca: makeCertificate().cert })).rejects.toThrow(/self.signed/);
});

test('a page of the same host without TLS has another origin', async () => {
  const post = { method: 'POST', ca: first.cert, content: '{"quota":"alice","patterns":"/tls/"}' };
  const statusFrom = async (Origin: string) => (await ask(REQUESTS, { ...post, headers: { Origin } })).status;
  expect(await statusFrom(app.url)).toBe(200);
  expect(await statusFrom(app.url.replace('https', 'http'))).toBe(403);
});

test('a connection without TLS is closed without a response', async () => {
  const { port } = new URL(app.url);
  for (const bytes of ['GET / HTTP/1.1\r\nHost: localhost\r\n\r\n', '\x16\x03\x01\x00\x05hello', '']) {
    const socket = net.connect(Number(port), '127.0.0.1').setEncoding('latin1');
    const received: string[] = [];
    socket.on('data', (part: string) => received.push(part)).end(bytes);
    await whenClosed(socket);
    expect(received.join('')).not.toContain('HTTP/');
  }
  expect((await ask('/health/live', { ca: first.cert })).status).toBe(200);
});

test('new connections get a renewed certificate once its key is there as well', async () => {
  const next = makeCertificate();
  const ca = first.cert + next.cert;
  const staying = new https.Agent({ keepAlive: true, maxSockets: 1 });
  expect((await ask('/health/live', { ca, agent: staying })).serial).toBe(first.serial);
  const warned = waitForLog();
  put(files.tlsKey, next.key);
  await warned;
  expect((await ask('/health/live', { ca })).serial).toBe(first.serial);
  put(files.tlsCert, next.cert);
  await waitFor('the new certificate', async () => (await ask('/health/live', { ca })).serial === next.serial);
  expect((await ask('/health/live', { ca, agent: staying })).status).toBe(200);
  staying.destroy();
});

/** Waits until the log says that the key does not match the certificate. */
async function waitForLog(): Promise<void> {
  const { log } = app.ctx;
  const warn = log.warn;
  await new Promise<void>((resolve) => {
    log.warn = ((_files: object, message: string) => {
      if (
        /^still serving the previous certificate: the key in TAPEGATE_TLS_KEY .* does not match the certificate/.test(
          message,
        )
      )
        resolve();
    }) as typeof warn;
  });
  log.warn = warn;
}

test('serve prints https URLs, and commands trust a private authority with NODE_EXTRA_CA_CERTS', async () => {
  const DATA_DIR = makeTempDir();
  const server = await serveHere({ ...environment, DATABASE_URL: app.databaseUrl, DATA_DIR });
  const { url } = server;
  const authority = { NODE_EXTRA_CA_CERTS: files.tlsCert };
  expect(url).toMatch(/^https:\/\/127\.0\.0\.1:\d+$/);
  expect(server.stdout()).toContain(`  GraphQL    ${url}/graphql\n`);
  expect(server.stdout()).toContain(`TAPEGATE_URL=${url} tapegate --help`);
  const listed = await runProgram(['ls', '--limit', '1'], { env: { TAPEGATE_URL: url, DATA_DIR, ...authority } });
  expect(listed).toMatchObject({ code: 0, stderr: '' });
  const refused = await runCli(['ls'], { env: { TAPEGATE_URL: url, DATA_DIR } });
  expect([refused.code, refused.stderr]).toEqual([
    4,
    `tapegate: ${url}: self-signed certificate (to trust a private certificate authority, set NODE_EXTRA_CA_CERTS)\n`,
  ]);
  expect((await server.stop()).code).toBe(0);
});

test('start reports files that it cannot use before it makes a database', async () => {
  const other = path.join(dir, 'other.pem');
  writeFileSync(other, makeCertificate().key);
  const rsa = path.join(dir, 'rsa.pem');
  const { privateKey } = generateKeyPairSync('rsa', { modulusLength: 2048 });
  writeFileSync(rsa, privateKey.export({ type: 'pkcs8', format: 'pem' }));
  const notPair = (key: string) =>
    `  the key in TAPEGATE_TLS_KEY ${key} does not match the certificate in TAPEGATE_TLS_CERT ${files.tlsCert}`;
  const DATA_DIR = makeTempDir();
  const none = path.join(dir, 'none.pem');
  const settings = { ...environment, DATA_DIR: path.join(DATA_DIR, 'new'), PORT: '0', DEMO: 'off', ENGINE: 'off' };
  for (const [TAPEGATE_TLS_KEY, error] of [
    [none, `  TAPEGATE_TLS_KEY ${none} cannot be used: ENOENT`],
    [
      files.tlsCert,
      `  TAPEGATE_TLS_KEY ${files.tlsCert} cannot be used: it is not a PEM private key without a passphrase (`,
    ],
    [other, notPair(other)],
    [rsa, notPair(rsa)],
  ] as const) {
    const result = await runCli(['start'], { env: { ...settings, TAPEGATE_TLS_KEY } });
    expect(result).toEqual({
      code: 2,
      stdout: '',
      stderr: expect.stringContaining(`invalid environment variable:\n${error}`),
    });
    expect(readdirSync(DATA_DIR)).toEqual([]);
  }
  const env = { TAPEGATE_TLS_CERT: none, TAPEGATE_TLS_KEY: files.tlsCert, DATA_DIR };
  const { stderr } = await runCli(['serve'], { env: { ...env, PORT: 'x' } });
  expect(stderr).toMatch(
    /invalid environment variables:\n(.*\n)? {2}TAPEGATE_TLS_CERT .*ENOENT.*\n {2}TAPEGATE_TLS_KEY .*\n/,
  );
  // commands that do not listen do not read the TLS files
  const doctor = await runCli(['doctor'], { env });
  expect([doctor.code, doctor.stderr]).toEqual([1, expect.stringContaining('there is no database')]);
});
