/** The server that `graphql.ts` compares with: plain Yoga, two SQL statements for a request and one for a page of files, no authentication and no limits. */
import type { RequestListener } from 'node:http';
import { createSchema, createYoga } from 'graphql-yoga';
import type pg from 'pg';

const typeDefs = `
  type Query { request(id: Int!): Request tapeFiles(first: Int!, after: String): Files! }
  type Request {
    requestId: Int! label: String! state: String! pattern: String! requestDate: String! retention: String!
    filesTotal: Int! filesOnDisk: Int! bytesTotal: String! quota: Quota! holds(first: Int!): Holds!
  }
  type Quota { user: String! size: String! }
  type Holds { edges: [Edge!]! }
  type Edge { node: Hold! }
  type Hold { state: String! size: String! file: File! }
  type File { path: String! size: String! stage: String! }
  type Files { edges: [FileEdge!]! pageInfo: PageInfo! }
  type FileEdge { cursor: String! node: File! }
  type PageInfo { hasNextPage: Boolean! endCursor: String }`;

const REQUEST = `SELECT r.id AS "requestId", r.label, r.state, r.pattern, r.request_date AS "requestDate", r.retention,
  r.files_total AS "filesTotal", r.files_on_disk AS "filesOnDisk", r.bytes_total::text AS "bytesTotal", q."user", q.size::text
  FROM request r JOIN quota q ON q.id = r.quota_id WHERE r.id = $1`;
const HOLDS = `SELECT h.state, h.size::text, f.path, f.size::text AS "fileSize", f.stage
  FROM hold h JOIN tape_file f ON f.id = h.file_id WHERE h.request_id = $1 AND h.ordinal > 0 ORDER BY h.ordinal LIMIT $2`;
const FILES = 'SELECT path, size::text, stage FROM tape_file WHERE path > $1 ORDER BY path LIMIT $2';

export function plainYoga(pool: pg.Pool): RequestListener {
  const read = async (name: string, text: string, values: unknown[]) => (await pool.query({ name, text, values })).rows;
  const resolvers = {
    Query: {
      request: async (_root: unknown, { id }: { id: number }) => (await read('plain_request', REQUEST, [id]))[0],
      tapeFiles: async (_root: unknown, { first, after }: { first: number; after: string }) =>
        toPage(await read('plain_files', FILES, [readCursor(after), first + 1]), first),
    },
    Request: {
      quota: (request: object) => request,
      holds: async ({ requestId }: { requestId: number }, { first }: { first: number }) => ({
        edges: await read('plain_holds', HOLDS, [requestId, first]),
      }),
    },
    Edge: { node: (hold: object) => hold },
    Hold: { file: (hold: { fileSize: string }) => ({ ...hold, size: hold.fileSize }) },
  };
  const schema = createSchema({ typeDefs, resolvers });
  const yoga = createYoga({ schema, logging: false, graphiql: false, landingPage: false });
  return (req, res) => void yoga(req, res);
}

const readCursor = (cursor: string) => Buffer.from(cursor, 'base64').toString().replace('GPC:S:', '');

function toPage(rows: readonly { path: string }[], first: number) {
  const cursorOf = (path: string) => Buffer.from(`GPC:S:${path}`).toString('base64');
  const edges = rows.slice(0, first).map((node) => ({ cursor: cursorOf(node.path), node }));
  return { edges, pageInfo: { hasNextPage: rows.length > first, endCursor: edges.at(-1)?.cursor } };
}
