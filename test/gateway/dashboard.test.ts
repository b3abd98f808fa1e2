/** Delivery of the dashboard's files. */
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { gzipSync } from 'node:zlib';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { packageRoot } from '../../src/core/package-root.js';
import { startApp, startBeside, type TestApp } from '../support/app.js';
import { sendGraphql } from '../support/graphql.js';
import { sendAsIs } from '../support/http.js';

let app: TestApp;
let below: TestApp;
let off: TestApp;

beforeAll(async () => {
  app = await startApp({ config: { access: { auth: new Set(['token']) } } });
  below = await startBeside(app, {
    config: { publicUrl: 'https://tapes.example.org/archive/tapegate', allowedHosts: ['127.0.0.1'] },
  });
  off = await startBeside(app, { config: { dashboard: false } });
});
afterAll(async () => {
  for (const each of [off, below, app]) await each?.close();
});

const assetOf = async (ext: string): Promise<string> => {
  const page = await (await fetch(`${app.url}/`)).text();
  return new RegExp(`\\./(assets/[^"]+\\.${ext})"`).exec(page)?.[1] ?? '';
};

test('the page is public, and loads only its own files', async () => {
  const answer = await fetch(`${app.url}/`);
  expect(answer.status).toBe(200);
  expect(answer.headers.get('content-type')).toBe('text/html; charset=utf-8');
  expect(answer.headers.get('content-security-policy')).toBe(
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'self'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'",
  );
  expect(answer.headers.get('cache-control')).toBe('no-cache');
  expect(await answer.text()).not.toMatch(
    /<script(?! type="module" crossorigin src="\.\/assets\/)|<style|style=|https?:/,
  );
  const tag = (await sendAsIs(app, '/')).headers.get('etag') ?? '';
  // `fetch` would add Cache-Control: no-cache
  expect((await sendAsIs(app, '/', { headers: { 'If-None-Match': tag } })).status).toBe(304);
  const head = await fetch(`${app.url}/`, { method: 'HEAD' });
  expect([head.status, await head.text()]).toEqual([200, '']);
});

test.each(['text/javascript', 'text/css'])('files of type %s are compressed and immutable', async (type) => {
  const { status, headers } = await fetch(`${app.url}/${await assetOf(type === 'text/css' ? 'css' : 'js')}`);
  expect([status, headers.get('content-type'), headers.get('cache-control')]).toEqual([
    ...[200, `${type}; charset=utf-8`, 'public, max-age=31536000, immutable'],
  ]);
  expect(headers.get('content-encoding')).not.toBeNull();
});

test('the scripts that a user needs for the first view are at most 120 kB', async () => {
  const page = await (await fetch(`${app.url}/`)).text();
  const scripts = [...page.matchAll(/\.\/(assets\/[^"]+\.js)"/g)].map(([, name = '']) => name);
  expect(scripts.length).toBeGreaterThan(0);
  const sizes = scripts.map((name) => gzipSync(readFileSync(path.join(packageRoot, 'dist/web', name))).length);
  expect(sizes.reduce((sum, size) => sum + size, 0)).toBeLessThanOrEqual(120_000);
});

test('other paths and methods return 404', async () => {
  const unknown = ['/index.html', '/assets/', '/assets', '/assets/none.js', '/nothing'];
  for (const target of [...unknown, '/..%2fpackage.json', '/assets/../../package.json']) {
    const { status, headers } = await sendAsIs(app, target);
    expect([target, status, headers.get('content-type')]).toEqual([target, 404, 'application/json; charset=utf-8']);
  }
  for (const method of ['POST', 'PUT', 'DELETE']) expect((await fetch(`${app.url}/`, { method })).status).toBe(404);
});

test('below a path of TAPEGATE_PUBLIC_URL the page finds its files, with and without a trailing slash', async () => {
  for (const target of ['/archive/tapegate', '/archive/tapegate/', '/']) {
    const answer = await fetch(`${below.url}${target}`);
    expect(await answer.text()).toContain('<head><base href="/archive/tapegate/" />');
  }
});

test('the dashboard can be switched off', async () => {
  expect((await fetch(`${off.url}/`)).status).toBe(404);
});

test('a script that is refused gets no challenge for which the browser would open a dialog', async () => {
  const challengeOf = async (headers: Record<string, string>) => {
    const answer = await sendGraphql({ url: app.url }, { query: '{ caller { name } }' }, { headers });
    return [answer.status, answer.headers.get('www-authenticate')];
  };
  expect(await challengeOf({})).toEqual([401, 'Basic realm="Tapegate", charset="UTF-8", Bearer realm="Tapegate"']);
  expect(await challengeOf({ 'X-Requested-With': 'XMLHttpRequest' })).toEqual([401, 'Bearer realm="Tapegate"']);
});
