/** The server that `graphql.ts` compares with: plain Yoga, two SQL statements for a request, no authentication and no limits. */
import type { RequestListener } from 'node:http';
import { createSchema, createYoga } from 'graphql-yoga';
import type pg from 'pg';

const typeDefs = `
  type Query { request(id: Int!): Request }
  type Request {
    requestId: Int! label: String! state: String! pattern: String! requestDate: String! retention: String!
    filesTotal: Int! filesOnDisk: Int! bytesTotal: String! quota: Quota! holds(first: Int!): Holds!
  }
  type Quota { user: String! size: String! }
  type Holds { edges: [Edge!]! }
  type Edge { node: Hold! }
  type Hold { state: String! size: String! file: File! }
  type File { path: String! size: String! stage: String! }`;

const REQUEST = `SELECT r.id AS "requestId", r.label, r.state, r.pattern, r.request_date AS "requestDate", r.retention,
  r.files_total AS "filesTotal", r.files_on_disk AS "filesOnDisk", r.bytes_total AS "bytesTotal", q."user", q.size
  FROM request r JOIN quota q ON q.id = r.quota_id WHERE r.id = $1`;
const HOLDS = `SELECT h.state, h.size, f.path, f.size AS "fileSize", f.stage
  FROM hold h JOIN tape_file f ON f.id = h.file_id WHERE h.request_id = $1 ORDER BY h.ordinal LIMIT $2`;

export function plainYoga(pool: pg.Pool): RequestListener {
  const read = async (name: string, text: string, values: unknown[]) => (await pool.query({ name, text, values })).rows;
  const resolvers = {
    Query: {
      request: async (_root: unknown, { id }: { id: number }) => (await read('plain_request', REQUEST, [id]))[0],
    },
    Request: {
      quota: (request: object) => request,
      holds: async ({ requestId }: { requestId: number }, { first }: { first: number }) => ({
        edges: await read('plain_holds', HOLDS, [requestId, first]),
      }),
    },
    Edge: { node: (hold: object) => hold },
    Hold: { file: (hold: { fileSize: bigint }) => ({ ...hold, size: hold.fileSize }) },
  };
  const schema = createSchema({ typeDefs, resolvers });
  return createYoga({ schema, logging: false, graphiql: false, landingPage: false }) as unknown as RequestListener;
}
