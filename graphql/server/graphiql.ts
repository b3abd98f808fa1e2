/** Serves GraphiQL as one cacheable page. The page loads nothing from other hosts. */
import { createHash } from 'node:crypto';
import type { Response } from 'express';
import { KeptBody } from '../../src/gateway/http/encodings.js';

/**
 * GraphiQL pages by GraphQL endpoint. The gateway creates a page when a browser first opens it, because a page uses 9
 * MB of memory.
 */
const pages = new Map<string, ReturnType<typeof makePage>>();

/** @param publicUrl the gateway's URL for browsers; GraphiQL sends queries to this URL with `/graphql` appended */
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
    'worker-src': 'blob:',
    'style-src': "'unsafe-inline'",
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

export const START_QUERY = `# Tapegate restores files from tape. Select an operation next to the run button.
# The default values of the variables fit the demo archive. Enter other values under "Variables", such as { "match": "/archive" }.
# If authentication is required, enter a token under "Headers": { "Authorization": "Bearer …" }

# The caller, its roles, and its quotas.
query Me {
  caller { name roles authentication isReadOnly quotas(first: 10) { edges { node { user size used } } } }
}

# Files whose path contains a substring, with their sizes and paths on disk.
query Files($match: String = "/demo/ocean/2024", $first: Int = 20) {
  tapeFiles(match: $match, first: $first) {
    totalCount
    edges { node { path size stage restoredPath volume { name } } }
  }
}

# An estimate of a request.
query Estimate($input: CreateRequestInput! = { quota: "alice", pattern: "/demo/ocean/2024" }) {
  estimateRequest(input: $input) {
    estimate { fileCount bytes bytesOnDisk bytesToRecall end { earliest planned latest } }
    errors { message }
  }
}

# The newest requests, with their progress and expected completion times.
query Requests($last: Int = 10) {
  requests(last: $last) {
    totalCount
    edges {
      node {
        requestId label state filesTotal filesOnDisk filesFailed bytesTotal bytesOnDisk
        waiting { queuePosition end { earliest planned latest } }
      }
    }
  }
}

# Creates a request, and charges the quota for its files.
mutation Restore($input: CreateRequestInput! = { quota: "alice", pattern: "/demo/ocean/2024" }) {
  createRequest(input: $input) {
    request { requestId state filesTotal bytesTotal }
    errors { message }
  }
}

# The progress of a request until it is finished.
subscription Progress($id: Int! = 1) {
  requestProgress(requestId: $id) {
    state filesOnDisk filesTotal filesFailed bytesOnDisk bytesTotal bytesPerSecond end { earliest planned latest } eventId
  }
}

# Stage changes of all files that the caller may list.
subscription Changes {
  stageChanges { path from to at eventId }
}
`;
