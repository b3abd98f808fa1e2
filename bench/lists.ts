/**
 * Lists of files, as REST tells them: of 100,000 hits, and of all of a catalogue of FILES (1,000,000). Beside them is a COPY of the same text
 * by the driver, in turns of alternating order, ROUNDS (3) of them, medians; who reads is another process. What a list takes of the
 * gateway's memory above what it has idle comes first, and the same list in gzip last, both in MB of
 * what it says.
 *
 *   npm run compile && FILES=10000000 node dist/bench/lists.js
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

/** What some 100,000 files have, before the first ten thousand of the orbits. */
const MATCH = '00_000';
const MEMORY_BYTES = 80_000_000;

interface Wish {
  url: string;
  encoding?: string | undefined;
}

interface Answer {
  bytes: number;
  /** The first of them. */
  head: string;
}

/** Another process that reads what it is told to. */
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

/** The text of the list as PostgreSQL makes it at its best; a line a file, as bytes. */
async function copy({ db }: Context, condition: string): Promise<void> {
  const item = `'{"path":' || to_json(path)::text || ',"stage":' || CASE stage WHEN 'UNVERIFIED' THEN '"U"' WHEN 'ONDISK' THEN '"D"'
    WHEN 'ONTAPE' THEN '"T"' WHEN 'RESTORING' THEN '"A"' WHEN 'RESTORED' THEN '"R"' END || ',"verified":' ||
    coalesce(replace(to_char(verified, '\\"YYYY-MM-DD"T"HH24:MI:SS.US\\"'), '.000000', ''), 'null') || ',"size":' || size || '}'`;
  const client = new db.Client({ ...db.config, statement_timeout: false });
  await client.connect();
  try {
    const rows = `SELECT ${item} FROM (SELECT * FROM tape_file WHERE ${condition} ORDER BY path OFFSET 0) f`;
    // signs that no JSON has, so that nothing is quoted
    const text = `COPY (${rows}) TO STDOUT (FORMAT csv, QUOTE E'\\x01', DELIMITER E'\\x02')`;
    for await (const _ of client.query(copyTo(text)));
  } finally {
    await client.end();
  }
}

/** How far `work` takes the memory of this process above what it has before. */
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
