/**
 * Runs the fuzz test: a server with its own database, all kinds of inputs in parallel lanes, and rounds.
 * At the end of each round, the checker and the doctor examine the server. Memory may not grow from the first to the
 * last tenth.
 */
import { rmSync } from 'node:fs';
import path from 'node:path';
import { openRuntime } from '../../src/cli/connection/runtime.js';
import { readConfig } from '../../src/config/config.js';
import { messageOf } from '../../src/core/errors.js';
import { startEmbedded } from '../../src/db/embedded/embedded.js';
import { createToken, revokeToken } from '../../src/domain/access/tokens.js';
import type { Context } from '../../src/domain/context.js';
import { importRows } from '../../src/domain/import/import.js';
import { startSweeper } from '../support/sweeping.js';
import { makeTempDir } from '../support/temp-dir.js';
import { createRandom } from '../torture/random.js';
import { startMail } from '../torture/receivers.js';
import { rows } from './archive.js';
import { keepHouse, mountpointsOf, restoreDisks, restoreQuotas } from './keeper.js';
import type { Memory } from './memory.js';
import { endRound, type RoundContext } from './rounds.js';
import { ServerProcess } from './server-process.js';
import { type Fault, Session } from './session.js';
import { tokens } from './values.js';

export interface FuzzOptions {
  seed: number;
  inputs: number;
  minutes: number;
  /** Sends only this input, given as `segment:path` as in a fault. */
  at?: string | undefined;
  /** URL of an empty database. By default, the fuzz test starts a database server. */
  databaseUrl?: string | undefined;
  maxFaults: number;
  settleMs: number;
  patienceMs: number;
  /** Allowed memory growth in bytes in addition to 10 %, for modules and compiled code. */
  slackBytes: number;
  signal: AbortSignal;
}

export interface FuzzResult extends Pick<Session, 'faults' | 'sent' | 'busy' | 'outcomes' | 'operations'> {
  seconds: number;
  /** Memory after each tenth of the run. */
  memory: Memory[];
  rounds: number;
}

const LANES = 24;
/** Number of inputs in a round. After each round, the database is checked and emptied. */
const ROUND = 20_000;
const TENTHS = 10;
const MAX_BUSY = 0.01;
const MAX_GROWTH = 1.1;
/** Number of inputs after which V8 has compiled most code. */
const WARM = 100_000;
const PROGRESS_MS = 30_000;
/** Pause after the last input, because some inputs take effect after their response. */
const LAST_MS = 100;

/** @param report is called with a line of progress from time to time */
export async function runFuzz(options: FuzzOptions, report: (line: string) => void): Promise<FuzzResult> {
  const dir = makeTempDir('fuzz');
  const sweeper = startSweeper(dir);
  const closers: (() => unknown)[] = [() => sweeper.sweep()];
  try {
    const dataDir = path.join(dir, 'data');
    const mail = await startMail(createRandom(options.seed));
    closers.unshift(() => mail.goAway());
    const own = options.databaseUrl === undefined ? await startDatabase(dir) : undefined;
    if (own) closers.unshift(own.close);
    const { seed, databaseUrl = own?.url } = options;
    const env = { DATA_DIR: dataDir, LOG_LEVEL: 'silent', ...(databaseUrl && { DATABASE_URL: databaseUrl }) };
    const runtime = await openRuntime(readConfig(env));
    closers.unshift(() => runtime.close());
    const { ctx } = runtime;
    await restoreQuotas(ctx);
    await importRows(ctx, [...rows]);
    await restoreDisks(ctx);
    const made = await createTokens(ctx);
    const server = await ServerProcess.start({ dataDir, databaseUrl, smtpUrl: mail.url });
    closers.unshift(() => server.stop());
    const session = new Session(server, { seed, lanes: LANES, tokens: made, mountpoints: mountpointsOf(ctx) });
    closers.unshift(() => session.close());
    let reported = 0;
    const progress = setInterval(() => {
      for (const fault of session.faults.slice(reported)) report(describeFault(fault, seed));
      reported = session.faults.length;
      report(describe(session));
    }, PROGRESS_MS);
    closers.unshift(() => clearInterval(progress));
    return await run(options, { ctx, session, mail, ...options }, report);
  } finally {
    for (const close of closers) await close();
    rmSync(dir, { recursive: true, force: true });
  }
}

async function createTokens(ctx: Context): Promise<{ name: string; secret: string }[]> {
  const made: { name: string; secret: string; id: number }[] = [];
  for (const input of tokens) {
    const { secret, token } = await createToken(ctx, input);
    made.push({ name: input.name, secret, id: token.id });
  }
  await revokeToken(ctx, made.at(-1)?.id ?? 0);
  return made;
}

/** Starts a database server without durability. */
async function startDatabase(dir: string): Promise<{ url: string; close(): Promise<void> }> {
  const settings = { fsync: 'off', synchronous_commit: 'off', full_page_writes: 'off', max_connections: 100 };
  const { config, close } = await startEmbedded({ dataDir: path.join(dir, 'postgres'), settings });
  const { user, port, host } = config('fuzz');
  return { url: `postgresql://${user}@localhost:${port}/fuzz?host=${encodeURIComponent(String(host))}`, close };
}

async function run(options: FuzzOptions, round: RoundContext, report: (line: string) => void): Promise<FuzzResult> {
  const { session } = round;
  const start = performance.now();
  const seconds = () => (performance.now() - start) / 1000;
  const memory: Memory[] = [];
  let rounds = 0;
  let lastRound = 0;
  const isEnough = () =>
    options.signal.aborted || session.faults.length >= options.maxFaults || seconds() > options.minutes * 60;
  const { at } = options;
  if (at !== undefined) await withKeeper(round, () => session.repeat(at));
  for (let tenth = 1; tenth <= TENTHS && at === undefined && !isEnough() && !session.isOver; tenth++) {
    const end = Math.round((options.inputs * tenth) / TENTHS);
    while (session.sent < end && !isEnough() && !session.isOver) {
      const until = Math.min(end, lastRound + ROUND);
      await withKeeper(round, () => session.run({ lanes: LANES, until, isEnough }));
      const isLast = until === options.inputs || isEnough();
      if (session.isOver || (until < lastRound + ROUND && !isLast)) continue;
      lastRound = session.sent;
      rounds++;
      for (const { kind, text } of await endRound(round))
        session.faults.push({ kind: 'invariant', text: `${kind}: ${text}` });
    }
    session.closeStreams();
    if (!session.isOver) memory.push(await session.server.measure());
    report(`${describe(session)}; ${describeMemory(memory.at(-1))}`);
  }
  await session.server.hasEnded(LAST_MS);
  if (!options.signal.aborted) {
    checkServer(session);
    checkMemory(session, memory, options);
  }
  const { faults, sent, busy, outcomes, operations } = session;
  return { faults, sent, busy, outcomes, operations, seconds: seconds(), memory, rounds };
}

async function withKeeper({ ctx, session }: RoundContext, work: () => Promise<void>): Promise<void> {
  const end = new AbortController();
  const keeping = keepHouse(ctx, session.known, end.signal);
  try {
    await work();
  } finally {
    end.abort();
    await keeping.catch((error) =>
      session.faults.push({ kind: 'unsettled', text: `housekeeping: ${messageOf(error)}` }),
    );
  }
}

function checkServer(session: Session): void {
  const { faults, server, sent, busy } = session;
  if (server.end !== undefined) {
    faults.push({
      kind: 'crash',
      text: `the server has ended: ${server.end}\nthe last inputs:\n${session.suspects()}`,
    });
  }
  for (const text of server.complaints) faults.push({ kind: 'warning', text });
  if (busy > sent * MAX_BUSY) faults.push({ kind: 'busy', text: `${busy} of ${sent} inputs were asked to retry` });
}

function checkMemory({ faults }: Session, memory: readonly Memory[], { inputs, slackBytes }: FuzzOptions): void {
  const warm = memory.findIndex((_, index) => ((index + 1) * inputs) / TENTHS >= WARM);
  const from = warm === -1 || warm === memory.length - 1 ? 0 : warm;
  const [first, last] = [memory[from], memory.at(-1)];
  if (!first || !last || memory.length < 2) return;
  // compare the heap, because free memory that V8 keeps changes RSS by a tenth
  if (last.heap <= first.heap * MAX_GROWTH + slackBytes) return;
  const after = Math.round(((from + 1) * inputs) / TENTHS);
  const text = `the heap was ${megabytes(first.heap)} after ${after} inputs, and is ${megabytes(last.heap)} at the end`;
  faults.push({ kind: 'memory', text });
}

function describe({ sent, busy, faults, known }: Session): string {
  return `${sent} inputs, ${known.acknowledged.size} requests, ${busy} asked to retry, ${faults.length} faults`;
}

/** Describes a fault, with the command that repeats the input if one input causes the fault. */
export function describeFault({ kind, text, at, input }: Fault, seed: number): string {
  return at === undefined ? `${kind}: ${text}` : `${kind}: ${text}\n  SEED=${seed} AT=${at} npm run fuzz\n  ${input}`;
}

export function describeMemory(memory: Memory | undefined): string {
  if (!memory) return 'memory unknown';
  return `heap ${megabytes(memory.heap)}, RSS ${megabytes(memory.rss)}`;
}

const megabytes = (bytes: number): string => `${(bytes / 1_000_000).toFixed(1)} MB`;
