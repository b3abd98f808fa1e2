/**
 * How long GET /health/live takes, asked again and again, while one caller asks GraphQL for much at once: AT_ONCE (40) queries of 2000 files each, and
 * LISTS_AT_ONCE (300) of twenty lists. Beside it stands the same gateway without turns (GRAPHQL_WORK and CALLER_GRAPHQL_WORK beyond all that comes), in
 * alternating order, ROUNDS (3) of each, medians of the longest answers.
 *
 *   npm run compile && node dist/bench/large-queries.js
 */
import { once } from 'node:events';
import { Worker } from 'node:worker_threads';
import { startGateway } from '../src/app.js';
import { importRows } from '../src/operations/catalogue/import.js';
import { median, withBench } from './kit.js';

const AT_ONCE = Number(process.env.AT_ONCE ?? 40);
const LISTS_AT_ONCE = Number(process.env.LISTS_AT_ONCE ?? 300);
const ROUNDS = Number(process.env.ROUNDS ?? 3);
const FILES = 3000;

const FIELDS = `id path size stage position checksum spotName withdrawnAt verified restoredPath bytesPath isAtPrimaryPlace
  volume { name id } disk { mountpoint id }`;
const LONG = `{ a: tapeFiles(first: 1000) { edges { cursor node { ${FIELDS} } } } b: tapeFiles(first: 1000, match: "bench") { edges { cursor node { ${FIELDS} } } } }`;
const MANY = `{ ${Array.from({ length: 20 }, (_, n) => `a${n}: tapeFiles(first: 150, match: "1") { edges { node { path } } }`).join(' ')} }`;
const attacks = {
  [`${AT_ONCE} queries of 2000 files`]: [LONG, AT_ONCE],
  [`${LISTS_AT_ONCE} queries of twenty lists`]: [MANY, LISTS_AT_ONCE],
} as const;

/** Asks from a thread of its own, so that its clock does not wait for the gateway. @returns milliseconds: of all together, and the longest of the small one */
async function ask(url: string, query: string, times: number): Promise<{ allMs: number; longestMs: number }> {
  const script = `
    const { workerData: { url, query, times }, parentPort } = require('node:worker_threads');
    const begunAt = performance.now();
    let [isOver, longestMs] = [false, 0];
    const look = async () => {
      while (!isOver) {
        const at = performance.now();
        await (await fetch(url + '/health/live')).text();
        longestMs = Math.max(longestMs, performance.now() - at);
      }
    };
    const large = async () => {
      const headers = { 'Content-Type': 'application/json' };
      const answer = await fetch(url + '/graphql', { method: 'POST', headers, body: JSON.stringify({ query }) });
      const text = await answer.text();
      if (answer.status !== 200 || text.startsWith('{"errors"')) throw new Error(answer.status + ' ' + text.slice(0, 200));
    };
    const looking = look();
    Promise.all(Array.from({ length: times }, large)).then(async () => {
      isOver = true;
      await looking;
      parentPort.postMessage({ allMs: performance.now() - begunAt, longestMs });
    });`;
  const worker = new Worker(script, { eval: true, workerData: { url, query, times } });
  const [told] = await once(worker, 'message');
  await worker.terminate();
  return told;
}

await withBench(
  async (ctx) => {
    const file = (n: number) => ({
      ...{ line: n + 1, path: `/bench/${n}.nc`, size: 1000n, stage: 'ONTAPE' as const, verified: null, spotName: null },
      ...{ volume: 'BENCH', position: BigInt(n + 1), checksum: null },
    });
    await importRows(
      ctx,
      Array.from({ length: FILES }, (_, n) => file(n)),
    );
    const most = { graphqlWork: 999_999_999, callerGraphqlWork: 999_999_999 };
    const without = { ...ctx, config: { ...ctx.config, limits: { ...ctx.config.limits, ...most } } };
    const ways = { 'in turns': await startGateway(ctx), 'all at once': await startGateway(without) };
    for (const [what, [query, times]] of Object.entries(attacks)) {
      const found = { 'in turns': [] as number[], 'all at once': [] as number[] };
      const took = { 'in turns': [] as number[], 'all at once': [] as number[] };
      const names = ['in turns', 'all at once'] as const;
      for (let round = 0; round <= ROUNDS; round++) {
        for (const name of round % 2 === 0 ? names : [...names].reverse()) {
          const { allMs, longestMs } = await ask(ways[name].url, query, times);
          if (round === 0) continue; // warms both
          found[name].push(longestMs);
          took[name].push(allMs);
        }
      }
      for (const name of names) {
        const [longest, all] = [median(found[name]), median(took[name])];
        console.log(
          `${what}, ${name}: /health/live ${Math.round(longest)} ms at most, all after ${Math.round(all)} ms`,
        );
      }
    }
    for (const gateway of Object.values(ways)) await gateway.close();
  },
  { PORT: '0' },
);
