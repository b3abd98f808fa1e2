/**
 * Reference server of `graphql.ts`, in its own process: plain Yoga and Pothos, without authentication and limits. A
 * query of a request takes two SQL statements, a page of files takes one statement.
 */
import { fork } from 'node:child_process';
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { fileURLToPath } from 'node:url';
import SchemaBuilder from '@pothos/core';
import { createYoga } from 'graphql-yoga';
import pg from 'pg';
import { exactTypes } from '../src/db/line.js';
import type { RequestFileState, RequestState, Stage } from '../src/generated/prisma/enums.js';

interface Request {
  requestId: number;
  label: string;
  state: RequestState;
  pattern: string;
  requestDate: string;
  retention: string;
  filesTotal: number;
  filesOnDisk: number;
  bytesTotal: string;
  user: string;
  size: string;
}

interface RequestFile extends File {
  state: RequestFileState;
  fileSize: string;
}

interface File {
  path: string;
  size: string;
  stage: Stage;
}

const REQUEST = `SELECT r.id AS "requestId", r.label, r.state, r.pattern, r.request_date AS "requestDate", r.retention,
  r.files_total AS "filesTotal", r.files_on_disk AS "filesOnDisk", r.bytes_total::text AS "bytesTotal", q."user", q.size::text
  FROM request r JOIN quota q ON q.id = r.quota_id WHERE r.id = $1`;
const REQUEST_FILES = `SELECT h.state, h.size::text, f.path, f.size::text AS "fileSize", f.stage
  FROM request_file h JOIN tape_file f ON f.id = h.file_id WHERE h.request_id = $1 AND h.ordinal > 0 ORDER BY h.ordinal LIMIT $2`;
const FILES = 'SELECT path, size::text, stage FROM tape_file WHERE path > $1 ORDER BY path LIMIT $2';

/** Starts the reference server, runs `work` with the server's URL, and stops the server. */
export async function withPlainYoga(config: pg.PoolConfig, work: (url: string) => Promise<void>): Promise<void> {
  const child = fork(fileURLToPath(import.meta.url), { env: { ...process.env, PLAIN_YOGA: JSON.stringify(config) } });
  try {
    const [url] = (await once(child, 'message')) as [string];
    await work(url);
  } finally {
    if (child.connected) child.disconnect();
  }
}

function plainSchema(pool: pg.Pool) {
  const read = async (name: string, text: string, values: unknown[]) => (await pool.query({ name, text, values })).rows;
  const builder = new SchemaBuilder<{
    DefaultFieldNullability: false;
    Scalars: { BigInt: { Input: string; Output: string }; DateTime: { Input: string; Output: string } };
  }>({ defaultFieldNullability: false, prisma: undefined as never }); // the Prisma plugin of Pothos is not used
  builder.scalarType('BigInt', {});
  builder.scalarType('DateTime', { serialize: (value) => `${value}Z` });
  const states = ['QUEUED', 'RESTORING', 'COMPLETED', 'PARTIAL', 'EXPIRED', 'CANCELLED'] as const;
  const RequestStateType = builder.enumType('RequestState', { values: states });
  const RequestFileStateType = builder.enumType('RequestFileState', {
    values: ['WAITING', 'ON_DISK', 'FAILED', 'RELEASED'] as const,
  });
  const stages = ['ONTAPE', 'RESTORING', 'ONDISK', 'RESTORED', 'UNVERIFIED'] as const;
  const StageType = builder.enumType('Stage', { values: stages });
  const FileType = builder.objectRef<File>('File').implement({
    fields: (t) => ({
      path: t.exposeString('path'),
      size: t.expose('size', { type: 'BigInt' }),
      stage: t.expose('stage', { type: StageType }),
    }),
  });
  const RequestFileType = builder.objectRef<RequestFile>('RequestFile').implement({
    fields: (t) => ({
      state: t.expose('state', { type: RequestFileStateType }),
      size: t.expose('size', { type: 'BigInt' }),
      file: t.field({ type: FileType, resolve: (each) => ({ ...each, size: each.fileSize }) }),
    }),
  });
  const RequestFileEdge = builder.objectRef<RequestFile>('RequestFileEdge').implement({
    fields: (t) => ({ node: t.field({ type: RequestFileType, resolve: (each) => each }) }),
  });
  const RequestFiles = builder.objectRef<RequestFile[]>('RequestFiles').implement({
    fields: (t) => ({ edges: t.field({ type: [RequestFileEdge], resolve: (files) => files }) }),
  });
  const Quota = builder.objectRef<Request>('Quota').implement({
    fields: (t) => ({ user: t.exposeString('user'), size: t.expose('size', { type: 'BigInt' }) }),
  });
  const RequestType = builder.objectRef<Request>('Request').implement({
    fields: (t) => ({
      requestId: t.exposeInt('requestId'),
      label: t.exposeString('label'),
      state: t.expose('state', { type: RequestStateType }),
      pattern: t.exposeString('pattern'),
      requestDate: t.expose('requestDate', { type: 'DateTime' }),
      retention: t.expose('retention', { type: 'DateTime' }),
      filesTotal: t.exposeInt('filesTotal'),
      filesOnDisk: t.exposeInt('filesOnDisk'),
      bytesTotal: t.expose('bytesTotal', { type: 'BigInt' }),
      quota: t.field({ type: Quota, resolve: (request) => request }),
      files: t.field({
        type: RequestFiles,
        args: { first: t.arg.int({ required: true }) },
        resolve: ({ requestId }, { first }) =>
          read('plain_request_files', REQUEST_FILES, [requestId, first]) as Promise<RequestFile[]>,
      }),
    }),
  });
  const PageInfo = builder.objectRef<{ hasNextPage: boolean; endCursor: string | undefined }>('PageInfo').implement({
    fields: (t) => ({
      hasNextPage: t.exposeBoolean('hasNextPage'),
      endCursor: t.exposeString('endCursor', { nullable: true }),
    }),
  });
  const FileEdge = builder.objectRef<{ cursor: string; node: File }>('FileEdge').implement({
    fields: (t) => ({ cursor: t.exposeString('cursor'), node: t.expose('node', { type: FileType }) }),
  });
  const Files = builder.objectRef<ReturnType<typeof toPage>>('Files').implement({
    fields: (t) => ({
      edges: t.expose('edges', { type: [FileEdge] }),
      pageInfo: t.expose('pageInfo', { type: PageInfo }),
    }),
  });
  builder.queryType({
    fields: (t) => ({
      request: t.field({
        type: RequestType,
        nullable: true,
        args: { requestId: t.arg.int({ required: true }) },
        resolve: async (_root, { requestId }) => (await read('plain_request', REQUEST, [requestId]))[0] as Request,
      }),
      tapeFiles: t.field({
        type: Files,
        args: { first: t.arg.int({ required: true }), after: t.arg.string({ required: true }) },
        resolve: async (_root, { first, after }) =>
          toPage((await read('plain_files', FILES, [readCursor(after), first + 1])) as File[], first),
      }),
    }),
  });
  return builder.toSchema();
}

const readCursor = (cursor: string) => Buffer.from(cursor, 'base64').toString().replace('GPC:S:', '');

function toPage(rows: readonly File[], first: number) {
  const cursorOf = (path: string) => Buffer.from(`GPC:S:${path}`).toString('base64');
  const edges = rows.slice(0, first).map((node) => ({ cursor: cursorOf(node.path), node }));
  return { edges, pageInfo: { hasNextPage: rows.length > first, endCursor: edges.at(-1)?.cursor } };
}

if (process.env.PLAIN_YOGA) {
  const pool = new pg.Pool({ ...JSON.parse(process.env.PLAIN_YOGA), types: exactTypes });
  const yoga = createYoga({ schema: plainSchema(pool), logging: false, graphiql: false, landingPage: false });
  const server = createServer(yoga).listen(0, '127.0.0.1', () => {
    process.send?.(`http://127.0.0.1:${(server.address() as AddressInfo).port}`);
  });
  process.once('disconnect', () => process.exit());
}
