/** GraphiQL, one page for all who open it: nothing comes from other hosts, and no script runs but its own. */
import { createHash } from 'node:crypto';
import { renderGraphiQL } from '@graphql-yoga/render-graphiql';
import type { Response } from 'express';

/** @param publicUrl where browsers find the gateway, which takes requests with and without the path of that */
export function createGraphiql(publicUrl: string | undefined): (res: Response) => void {
  const endpoint = publicUrl ? new URL(`${publicUrl}/graphql`).pathname : '/graphql';
  let page: { body: Buffer; policy: string } | undefined;
  return (res) => {
    page ??= makePage(endpoint); // of 9 MB, which nobody may ever open
    res.setHeader('Content-Security-Policy', page.policy);
    res.setHeader('Content-Type', 'text/html; charset=utf-8');
    res.setHeader('Content-Length', page.body.length);
    res.end(page.body);
  };
}

function makePage(endpoint: string): { body: Buffer; policy: string } {
  const text = renderGraphiQL({ title: 'Tapegate', endpoint });
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
  return { body: Buffer.from(text), policy: directives.join('; ') };
}
