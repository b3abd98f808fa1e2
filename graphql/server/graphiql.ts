/** GraphiQL, one page for all who open it: nothing comes from other hosts, and no script runs but its own. */
import { createHash } from 'node:crypto';
import type { Response } from 'express';
import { KeptBody } from '../../src/gateway/http/encodings.js';

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

export const START_QUERY = `# Tapegate restores files from tape. Choose an operation at the button that runs them.
# What stands after $… is for the demo archive: give your own below, under "Variables", such as { "match": "/archive" }
# Where the door is closed, give your token below, under "Headers": { "Authorization": "Bearer …" }

# Who am I here, and what may I?
query Me {
  caller { name roles way isReadOnly }
  quotas(first: 10) { edges { node { user size used } } }
}

# Files whose path contains a text, with how large they are and where they are on disk.
query Files($match: String = "/demo/ocean/2024", $first: Int = 20) {
  tapeFiles(match: $match, first: $first) {
    totalCount
    edges { node { path size stage restoredPath volume { name } } }
  }
}

# What a request would take, before it is made.
query WhatWouldItTake($wish: CreateRequestInput! = { quota: "alice", pattern: "/demo/ocean/2024" }) {
  estimateRequest(input: $wish) {
    __typename
    ... on Estimate { files bytes bytesOnDisk bytesToRecall end { earliest planned latest } }
    ... on Failure { message }
  }
}

# The newest requests, how far they are, and what they wait for.
query Requests($last: Int = 10) {
  requests(last: $last) {
    totalCount
    edges {
      node {
        requestId label state filesTotal filesOnDisk filesFailed bytesTotal bytesOnDisk
        waiting { place end { earliest planned latest } }
      }
    }
  }
}

# Asks for files: they are charged to the quota.
mutation Restore($wish: CreateRequestInput! = { quota: "alice", pattern: "/demo/ocean/2024" }) {
  createRequest(input: $wish) {
    __typename
    ... on Request { requestId state filesTotal bytesTotal }
    ... on Failure { message }
  }
}

# A request as it goes on, until it is complete.
subscription Progress($id: Int! = 1) {
  requestProgress(id: $id) { state filesOnDisk filesTotal filesFailed bytesOnDisk bytesTotal eta eventId }
}

# Files as they come and go, all that you may see.
subscription Changes {
  stageChanges { path from to at eventId }
}
`;
