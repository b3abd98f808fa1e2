/** What the dashboard does with responses that a gateway would not send, and with the times of a provider. */
import path from 'node:path';
import { afterEach, expect, test, vi } from 'vitest';
import { packageRoot } from '../../src/core/package-root.js';
import { createGate } from '../support/wait.js';

afterEach(() => vi.unstubAllGlobals());

/** Loads a file of the dashboard, which is a separate TypeScript project. */
const load = async (file: string) => await import(/* @vite-ignore */ path.join(packageRoot, 'src/web', file));

/** Provides the globals of a page, and a `fetch` that answers by URL. */
function stubPage(answer: (url: string) => Response): void {
  const storage = { getItem: () => null };
  vi.stubGlobal('document', { baseURI: 'https://tapes.example.org/' });
  vi.stubGlobal('sessionStorage', storage);
  vi.stubGlobal('localStorage', storage);
  vi.stubGlobal('fetch', async (url: unknown) => answer(String(url)));
}

const page = () => new Response('<html>log in</html>', { headers: { 'Content-Type': 'text/html; charset=utf-8' } });

test("a proxy's login page is reported instead of a lost connection, for streams and for queries", async () => {
  stubPage(page);
  const { openClient } = await load('graphql-client.ts');
  const { messageOf } = await load('parts/problem.tsx');
  const reported = createGate();
  let state: string | undefined;
  const { client, close } = openClient((connection: string) => {
    state = connection;
    reported.open();
  });
  const stream = client.subscription('subscription { x }', {}).subscribe(() => {});
  await reported.opened;
  stream.unsubscribe();
  const { error } = await client.query('{ x }', {});
  close();
  expect(state).toBe('intercepted');
  expect(error && messageOf(error)).toBe(
    'Another server responds instead of the gateway. Reload the page to log in again.',
  );
});

test('the end of a token whose lifetime is a huge number is a finite time', async () => {
  const issuer = 'https://iam.example.org';
  const answers = [
    { authorization_servers: [issuer], tapegate_client_id: 'c', tapegate_audience: 'https://tapes.example.org/' },
    { issuer, token_endpoint: `${issuer}/token` },
    { access_token: 't', token_type: 'Bearer', expires_in: 1e308 },
  ];
  stubPage(() => Response.json(answers.shift()));
  const { renew } = await load('sign-in/oidc.ts');
  const { expiresAt } = await renew({ token: 'old', issuer, refreshToken: 'r' });
  expect(Number.isFinite(expiresAt)).toBe(true);
});
