/**
 * Compares POST /requests with a bare transaction that has the same effects. A request names FILES (default 10) files.
 * First each client uses a quota of its own, then all clients use one quota. Sixteen clients in another process load
 * the servers in turns of SECONDS (default 4) seconds. Each server has ROUNDS (default 9) turns, in alternating order.
 * Medians are compared. ONLY=each or ONLY=one measures only one case.
 *
 * Usage: npm run compile && node dist/bench/posts.js
 */
import { createServer, type RequestListener } from 'node:http';
import type { AddressInfo } from 'node:net';
import pg from 'pg';
import { setQuota } from '../src/domain/quotas/quotas.js';
import { startGateway } from '../src/main/app.js';
import { inTurns, tellFigure } from './figures.js';
import { withBench } from './kit.js';
import { startLoad } from './load.js';

const CLIENTS = 16;
/**
 * Number of files in the catalogue. Each body names different files, so that no request waits for locks of another
 * request.
 */
const CATALOGUE = 200_000;
const files = Number(process.env.FILES ?? 10);
const seconds = Number(process.env.SECONDS ?? 4);
const rounds = Number(process.env.ROUNDS ?? 9);
const only = process.env.ONLY;

interface Body {
  quota: string;
  files: string[];
}

function buildBodies(quotaOf: (client: number) => string): string[] {
  return Array.from({ length: Math.floor(CATALOGUE / files) }, (_, body) =>
    JSON.stringify([
      {
        quota: quotaOf(body % CLIENTS),
        files: Array.from({ length: files }, (_, n) => `/bench/${body * files + n}`),
      } satisfies Body,
    ]),
  );
}

/** Returns a function that runs a prepared statement of this name. */
function statement(name: string, text: string) {
  return (client: pg.PoolClient, values: unknown[]) => client.query({ name, text, values });
}

const insertRequest = statement(
  'request',
  `INSERT INTO request (quota_id, label, request_date, retention, made_by, ruled_by)
   SELECT id, $2, now(), now() + interval '5 days', $3, $3 FROM quota WHERE "user" = $1 RETURNING id, quota_id`,
);
const insertRequestFiles = statement(
  'files',
  `WITH held AS (
     INSERT INTO request_file (request_id, file_id, ordinal, size)
     SELECT $1, f.id, l.n, f.size FROM unnest($2::text[]) WITH ORDINALITY AS l (path, n) JOIN tape_file f ON f.path = l.path
     RETURNING size
   ) SELECT count(*)::int AS files, sum(size) AS bytes FROM held`,
);
const insertRecalls = statement(
  'recalls',
  `INSERT INTO recall (file_id, volume_id, position, size, created_at)
   SELECT f.id, f.volume_id, f.position, f.size, now() FROM request_file h JOIN tape_file f ON f.id = h.file_id
   WHERE h.request_id = $1 AND f.stage = 'ONTAPE' ORDER BY f.id
   ON CONFLICT (file_id) DO UPDATE SET created_at = recall.created_at`,
);
const chargeQuota = statement(
  'charge',
  'UPDATE quota SET used = used + $2::bigint WHERE id = $1 AND used + $2::bigint <= size',
);
const countRequest = statement(
  'count',
  'UPDATE request SET files_total = $2::int, bytes_total = $3::bigint WHERE id = $1',
);
const insertAudit = statement(
  'audit',
  `INSERT INTO audit (at, who, way, operation, kind, object, given, result)
   VALUES (now(), 'anybody', 'ANYBODY', 'createRequest', 'REQUEST', $1::text, $2, 'DONE')`,
);
const insertEvent = statement(
  'event',
  `INSERT INTO event (at, request_ids, request_id, state, files_total, files_on_disk, files_failed, bytes_total, bytes_on_disk)
   SELECT now(), '{}', id, state, files_total, files_on_disk, files_failed, bytes_total, bytes_on_disk FROM request WHERE id = $1`,
);

async function makeBare(client: pg.PoolClient, { quota, files }: Body): Promise<number> {
  await client.query('BEGIN');
  const { rows } = await insertRequest(client, [quota, files[0], 'anybody']);
  const [{ id, quota_id }] = rows;
  const held = await insertRequestFiles(client, [id, files]);
  await chargeQuota(client, [quota_id, held.rows[0].bytes]);
  await insertRecalls(client, [id]);
  await countRequest(client, [id, held.rows[0].files, held.rows[0].bytes]);
  await insertAudit(client, [id, JSON.stringify({ quota, files })]);
  await insertEvent(client, [id]);
  await client.query('COMMIT');
  return id;
}

function bareGateway(pool: pg.Pool): RequestListener {
  return async (req, res) => {
    const chunks: Buffer[] = [];
    for await (const chunk of req) chunks.push(chunk);
    const [body] = JSON.parse(Buffer.concat(chunks).toString()) as [Body];
    const client = await pool.connect();
    const id = await makeBare(client, body);
    client.release();
    const answer = Buffer.from(JSON.stringify([{ req_id: id }]));
    res.writeHead(200, { 'Content-Type': 'application/json', 'Content-Length': answer.length }).end(answer);
  };
}

async function compare(name: string, work: string, urls: { ours: string; reference: string }, bodies: string[]) {
  if (only !== undefined && only !== name) return;
  const load = startLoad();
  const at = (base: string) => async () => {
    const url = `${base}/tape_control/api/v1/requests`;
    const headers = { 'Content-Type': 'application/json' };
    return (await load.run({ url, method: 'POST', headers, bodies, clients: CLIENTS, seconds, holds: 'req_id' }))
      .perSecond;
  };
  const ways = { ours: at(urls.ours), reference: at(urls.reference) };
  try {
    await inTurns(ways, 1); // warm-up, not measured
    const rates = await inTurns(ways, rounds);
    const beside = 'bare transaction';
    const each = (all: readonly number[]) => all.map((rate) => rate.toFixed(0)).join(' ');
    console.log(`Tapegate ${each(rates.ours.all)}, ${beside} ${each(rates.reference.all)}`);
    tellFigure({ work, ours: rates.ours.median, reference: rates.reference.median, beside, unit: '/s', bound: 0.32 });
  } finally {
    load.close();
  }
}

await withBench(
  async (ctx) => {
    const gateway = await startGateway(ctx);
    const pool = new pg.Pool({ ...ctx.db.config, max: 20 }); // as many connections as a gateway has
    await ctx.db.pool.query(
      `INSERT INTO tape_file (path, size, stage) SELECT '/bench/' || n, 1000, 'ONTAPE' FROM generate_series(0, ${CATALOGUE - 1}) n`,
    );
    for (let n = 0; n < CLIENTS; n++) await setQuota(ctx, { user: `user${n}`, size: 10n ** 15n });
    await ctx.db.pool.query('ANALYZE');
    const server = createServer(bareGateway(pool));
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    const urls = { ours: gateway.url, reference: `http://127.0.0.1:${(server.address() as AddressInfo).port}` };
    const work = `POST /requests, ${files} files`;
    await compare(
      'each',
      `${work}, a quota each`,
      urls,
      buildBodies((client) => `user${client}`),
    );
    await compare(
      'one',
      `${work}, all on one quota`,
      urls,
      buildBodies(() => 'user0'),
    );
    server.closeAllConnections();
    server.close();
    await pool.end();
    await gateway.close();
  },
  { PORT: '0', TAPEGATE_RATE_LIMIT: '1000000' },
);
