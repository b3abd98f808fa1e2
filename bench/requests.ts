/**
 * Compares GET /requests/{id} with a bare server of node:http and pg. Sixteen clients in another process load the
 * servers in turns of SECONDS (default 3) seconds. Each server has ROUNDS (default 9) turns, in alternating order.
 * Medians are compared.
 *
 * Usage: npm run compile && node dist/bench/requests.js
 */
import type { RequestListener } from 'node:http';
import pg from 'pg';
import { setQuota } from '../src/domain/quotas/quotas.js';
import { createRequest } from '../src/domain/requests/create.js';
import { startGateway } from '../src/main/app.js';
import { compare } from './beside.js';
import { withBench } from './kit.js';

const CLIENTS = 16;
const FILES = 25;
const turns = {
  clients: CLIENTS,
  seconds: Number(process.env.SECONDS ?? 3),
  rounds: Number(process.env.ROUNDS ?? 9),
};

/** Prepared statement that reads a request with its paths, and no other columns than the answer has. */
const ONE_REQUEST = {
  name: 'request',
  text: `SELECT r.id, q."user" AS quota, r.retention, r.request_date, r.pattern AS request_patterns, r.notify_on_first_file,
      r.notify_on_last_file, r.label, p.paths
    FROM request r JOIN quota q ON q.id = r.quota_id CROSS JOIN LATERAL (
      SELECT string_agg(to_json(l.path)::text, ',' ORDER BY l.ordinal) AS paths FROM (
        SELECT f.path, h.ordinal FROM request_file h JOIN tape_file f ON f.id = h.file_id WHERE h.request_id = r.id
        UNION ALL SELECT a.path, a.ordinal FROM unresolved_path a WHERE a.request_id = r.id
      ) l
    ) p WHERE r.id = $1`,
};

function bareRequest(pool: pg.Pool): RequestListener {
  return async (req, res) => {
    const { rows } = await pool.query({ ...ONE_REQUEST, values: [Number(req.url?.split('/').at(-1))] });
    const { paths, ...fields } = rows[0];
    const body = Buffer.from(`[${JSON.stringify(fields).slice(0, -1)},"files":[${paths}]}]`);
    res.writeHead(200, { 'Content-Type': 'application/json', 'Content-Length': body.length }).end(body);
  };
}

await withBench(
  async (ctx) => {
    const gateway = await startGateway(ctx);
    const pool = new pg.Pool({ ...ctx.db.config, max: 20 }); // as many connections as a gateway has
    await ctx.db.pool.query(
      `INSERT INTO tape_file (path, size, stage) SELECT '/bench/' || n, 1000, 'ONTAPE' FROM generate_series(0, 99999) n`,
    );
    for (let n = 0; n < CLIENTS; n++) await setQuota(ctx, { user: `user${n}`, size: 10n ** 15n });
    const files = Array.from({ length: FILES }, (_, n) => `/bench/${n}`);
    const id = await createRequest(ctx, { quota: 'user0', files });
    await ctx.db.pool.query('ANALYZE');
    const pair = {
      work: `GET /requests/{id}, ${FILES} files`,
      reference: bareRequest(pool),
      beside: 'bare node:http and pg',
      bound: 0.4,
      path: `/tape_control/api/v1/requests/${id}`,
      load: { holds: `/bench/${FILES - 1}` },
    };
    await compare(gateway.url, pair, turns);
    await pool.end();
    await gateway.close();
  },
  { PORT: '0' },
);
