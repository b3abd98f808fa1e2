/** How the page for people is served. */
import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { gzipSync } from 'node:zlib';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { packageRoot } from '../../src/package-root.js';
import { startApp, type TestApp } from '../support/app.js';
import { sendAsIs } from '../support/http.js';

const FOLDER = path.join(packageRoot, 'dist/web');
/** All of it, as browsers load it before anything is shown. */
const MOST_SCRIPT_BYTES = 100_000;

let app: TestApp;
let below: TestApp;
let off: TestApp;

beforeAll(async () => {
  app = await startApp({ config: { access: { auth: new Set(['token']) } } });
  below = await startApp({ config: { publicUrl: 'https://tapes.example.org/archive/tapegate' } });
  off = await startApp({ config: { dashboard: false } });
}, 120_000);
afterAll(async () => {
  for (const each of [app, below, off]) await each?.close();
});

const assetOf = async (ext: string): Promise<string> => {
  const page = await (await fetch(`${app.url}/`)).text();
  return new RegExp(`\\./(assets/[^"]+\\.${ext})"`).exec(page)?.[1] ?? '';
};

describe('the page', () => {
  test('is there for whoever opens it, and lets nothing in but its own pieces', async () => {
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
    // `fetch` would say that it wants nothing kept
    expect((await sendAsIs(app, '/', { headers: { 'If-None-Match': tag } })).status).toBe(304);
    const head = await fetch(`${app.url}/`, { method: 'HEAD' });
    expect([head.status, await head.text()]).toEqual([200, '']);
  });

  test('has pieces that are kept for good, since their names tell what is in them', async () => {
    for (const [ext, type] of [
      ['js', 'text/javascript; charset=utf-8'],
      ['css', 'text/css; charset=utf-8'],
    ] as const) {
      const answer = await fetch(`${app.url}/${await assetOf(ext)}`);
      expect([answer.status, answer.headers.get('content-type'), answer.headers.get('cache-control')]).toEqual([
        200,
        type,
        'public, max-age=31536000, immutable',
      ]);
      expect(answer.headers.get('content-encoding')).not.toBeNull();
    }
  });

  test('is small', () => {
    const assets = path.join(FOLDER, 'assets');
    const scripts = readdirSync(assets).filter((name) => name.endsWith('.js'));
    expect(scripts.length).toBeGreaterThan(0);
    const sizes = scripts.map((name) => gzipSync(readFileSync(path.join(assets, name))).length);
    expect(sizes.reduce((sum, size) => sum + size, 0)).toBeLessThan(MOST_SCRIPT_BYTES);
  });

  test('is nothing else than its files', async () => {
    for (const place of [
      '/index.html',
      '/assets/',
      '/assets',
      '/assets/none.js',
      '/..%2fpackage.json',
      '/assets/../../package.json',
      '/nothing',
    ]) {
      const answer = await fetch(`${app.url}${place}`);
      expect([place, answer.status, answer.headers.get('content-type')]).toEqual([
        place,
        404,
        'application/json; charset=utf-8',
      ]);
    }
    for (const method of ['POST', 'PUT', 'DELETE']) expect((await fetch(`${app.url}/`, { method })).status).toBe(404);
  });

  test('finds its pieces below a path, with and without a slash at its end', async () => {
    const allowed = { host: 'tapes.example.org' };
    for (const place of ['/archive/tapegate', '/archive/tapegate/', '/']) {
      const answer = await fetch(`${below.url}${place}`, { headers: allowed });
      expect(await answer.text()).toContain('<head><base href="/archive/tapegate/" />');
    }
  });

  test('may be left away', async () => {
    expect((await fetch(`${off.url}/`)).status).toBe(404);
  });
});

test('where the script of a page is refused, it has no dialog of the browser over it', async () => {
  const ask = async (headers: Record<string, string>) =>
    await fetch(`${app.url}/graphql`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', ...headers },
      body: '{"query":"{ caller { name } }"}',
    });
  const plain = await ask({});
  expect([plain.status, plain.headers.get('www-authenticate')]).toEqual([
    401,
    'Basic realm="Tapegate", charset="UTF-8", Bearer realm="Tapegate"',
  ]);
  const script = await ask({ 'x-requested-with': 'XMLHttpRequest' });
  expect([script.status, script.headers.get('www-authenticate')]).toEqual([401, 'Bearer realm="Tapegate"']);
});
