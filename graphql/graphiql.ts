/** GraphiQL, one page for all who open it: nothing comes from other hosts, and no script runs but its own. */
import { createHash } from 'node:crypto';
import type { Response } from 'express';
import { KeptBody } from '../src/encodings.js';
import { START_QUERY } from './graphiql-start.js';

/** One page per endpoint, made when it is first opened, because each takes 9 MB. */
const pages = new Map<string, ReturnType<typeof makePage>>();

/** @param publicUrl where browsers find the gateway, which takes requests with and without the path of that */
export function createGraphiql(publicUrl: string | undefined): (res: Response) => Promise<void> {
  const endpoint = publicUrl ? new URL(`${publicUrl}/graphql`).pathname : '/graphql';
  return async (res) => {
    const page = pages.get(endpoint) ?? makePage(endpoint);
    pages.set(endpoint, page);
    const { body, policy } = await page;
    res.setHeader('Content-Security-Policy', policy);
    res.setHeader('Content-Type', 'text/html; charset=utf-8');
    await body.send(res);
  };
}

async function makePage(endpoint: string): Promise<{ body: KeptBody; policy: string }> {
  const { renderGraphiQL } = await import('@graphql-yoga/render-graphiql');
  const text = renderGraphiQL({
    title: 'Tapegate',
    endpoint,
    defaultTabs: [{ query: START_QUERY }],
  });
  const [, script = ''] = /<script>([\s\S]*)<\/script>/.exec(text) ?? [];
  const policy = {
    'default-src': "'none'",
    'script-src': `'sha256-${createHash('sha256').update(script).digest('base64')}'`,
    'worker-src': 'blob:', // its editor's
    'style-src': "'unsafe-inline'", // the editor writes its own as it goes
    'img-src': "'self' data:",
    'font-src': 'data:',
    'connect-src': "'self'",
    'frame-ancestors': "'none'",
    'base-uri': "'none'",
    'form-action': "'none'",
  };
  const directives = Object.entries(policy).map((directive) => directive.join(' '));
  return { body: new KeptBody(Buffer.from(text)), policy: directives.join('; ') };
}
