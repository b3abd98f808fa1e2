/**
 * Measures REST lists of files: a list of 100,000 hits, and a list of a whole catalogue of FILES (default 1,000,000). A
 * reader in another process gets each list. The reference is a COPY of the same text with the PostgreSQL driver. The
 * list and the COPY run ROUNDS times each (default 3), in alternating order, and medians are compared. For each list,
 * the first figure is the gateway's peak memory above idle, and the last figure is the rate with gzip. Rates count
 * uncompressed bytes.
 *
 * Usage: npm run compile && FILES=10000000 node dist/bench/lists.js
 */
import { fork } from 'node:child_process';
import { once } from 'node:events';
import http from 'node:http';
import { fileURLToPath } from 'node:url';
import { to as copyTo } from 'pg-copy-streams';
import type { Context } from '../src/domain/context.js';
import { startGateway } from '../src/main/app.js';
import { withCatalogue } from './catalogue.js';
import { inTurns, tellFigure } from './figures.js';
import { seconds } from './kit.js';

/** Text in about 100,000 paths: the paths of the first 10,000 orbits. */
const MATCH = '00_000';
const MEMORY_BYTES = 80_000_000;

interface Wish {
  url: string;
  encoding?: string | undefined;
}

interface Answer {
  bytes: number;
  /** First 40 bytes of the body. */
  head: string;
}

/** Starts another process that reads lists on request. */
function startReader() {
  const child = fork(fileURLToPath(import.meta.url), { env: { ...process.env, IS_READER: '1' } });
  return {
    read: async (wish: Wish): Promise<Answer> => {
      child.send(wish);
      const [answer] = (await once(child, 'message')) as [Answer | { error: string }];
      if ('error' in answer) throw new Error(answer.error);
      return answer;
    },
    close: () => child.disconnect(),
  };
}

async function read({ url, encoding }: Wish): Promise<Answer> {
  const headers = encoding === undefined ? {} : { 'Accept-Encoding': encoding };
  const [res] = (await once(http.get(url, { headers }), 'response')) as [http.IncomingMessage];
  let bytes = 0;
  let head = '';
  for await (const chunk of res) {
    if (bytes === 0) head = chunk.subarray(0, 40).toString('latin1');
    bytes += chunk.length;
  }
  if (res.statusCode !== 200 || !res.complete) throw new Error(`${url} answered ${res.statusCode}, ${bytes} bytes`);
  if (res.headers['content-encoding'] !== encoding)
    throw new Error(`${url} came as ${res.headers['content-encoding']}`);
  return { bytes, head };
}

/** Reads the text of the list with the fastest statement for PostgreSQL, as bytes, with a line for each file. */
async function copy({ db }: Context, condition: string): Promise<void> {
  const item = `'{"path":' || to_json(path)::text || ',"stage":' || CASE stage WHEN 'UNVERIFIED' THEN '"U"' WHEN 'ONDISK' THEN '"D"'
    WHEN 'ONTAPE' THEN '"T"' WHEN 'RESTORING' THEN '"A"' WHEN 'RESTORED' THEN '"R"' END || ',"verified":' ||
    coalesce(replace(to_char(verified, '\\"YYYY-MM-DD"T"HH24:MI:SS.US\\"'), '.000000', ''), 'null') || ',"size":' || size || '}'`;
  const client = new db.Client({ ...db.config, statement_timeout: false });
  await client.connect();
  try {
    const rows = `SELECT ${item} FROM (SELECT * FROM tape_file WHERE ${condition} ORDER BY path OFFSET 0) f`;
    // characters that JSON never contains, so that COPY quotes nothing
    const text = `COPY (${rows}) TO STDOUT (FORMAT csv, QUOTE E'\\x01', DELIMITER E'\\x02')`;
    for await (const _ of client.query(copyTo(text)));
  } finally {
    await client.end();
  }
}

/** Returns by how much `work` raises the resident memory of this process, in bytes. */
async function peakOf(work: () => Promise<unknown>): Promise<number> {
  const idle = process.memoryUsage().rss;
  let peak = idle;
  const timer = setInterval(() => {
    peak = Math.max(peak, process.memoryUsage().rss);
  }, 10);
  await work();
  clearInterval(timer);
  return peak - idle;
}

async function measure(): Promise<void> {
  const count = Number(process.env.FILES ?? 1_000_000);
  const rounds = Number(process.env.ROUNDS ?? 3);
  await withCatalogue(count, async (ctx) => {
    const gateway = await startGateway(ctx);
    const reader = startReader();
    const lists = [
      {
        what: '100,000 hits',
        query: `?match=${MATCH}`,
        condition: `path LIKE '%${MATCH.replace('_', '\\_')}%'`,
      },
      { what: 'all', query: '', condition: 'true' },
    ];
    await read({ url: `${gateway.url}/tape_control/api/v1/files?match=zyx` });
    for (const { what, query, condition } of lists) {
      const { rows } = await ctx.db.pool.query(`SELECT count(*) AS hits FROM tape_file WHERE ${condition}`);
      const { hits } = rows[0];
      const url = `${gateway.url}/tape_control/api/v1/files${query}`;
      let bytes = 0;
      const ask = async (encoding?: string) => {
        const answer = await reader.read({ url, encoding });
        if (encoding === undefined && !answer.head.startsWith(`[{"count":${hits},`)) throw new Error(answer.head);
        return answer.bytes;
      };
      const above = await peakOf(async () => {
        bytes = await ask();
      });
      const name = `GET /files, ${what} of ${count.toLocaleString('en-US')}`;
      const cost = { unit: 'MB', beside: 'at most', isCost: true, bound: 1 };
      tellFigure({ work: `${name}: memory above idle`, ours: above / 1e6, reference: MEMORY_BYTES / 1e6, ...cost });
      const rate = async (work: () => Promise<unknown>) => bytes / 1e6 / (await seconds(work));
      const ways = { ours: () => rate(() => ask()), reference: () => rate(() => copy(ctx, condition)) };
      const rates = await inTurns(ways, rounds);
      const beside = 'COPY of the same text';
      const reference = rates.reference.median;
      tellFigure({ work: name, ours: rates.ours.median, reference, beside, unit: 'MB/s', bound: 0.6 });
      const gzip = await rate(() => ask('gzip'));
      tellFigure({ work: `${name}, gzip`, ours: gzip, reference: rates.ours.median, beside: 'as it is', unit: 'MB/s' });
    }
    reader.close();
    await gateway.close();
  });
}

if (process.env.IS_READER) {
  process.on('message', (wish: Wish) => {
    read(wish).then(
      (answer) => process.send?.(answer),
      (error: Error) => process.send?.({ error: error.message }),
    );
  });
} else await measure();
