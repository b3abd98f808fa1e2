/**
 * The fuzz: a server with a gateway, an engine and a database of its own, inputs of every kind in parallel lanes, and at the
 * end of each round the checker and the doctor. Memory is measured over one process, from the first tenth to the last.
 */
import { rmSync } from 'node:fs';
import path from 'node:path';
import { readConfig } from '../../src/config.js';
import type { Context } from '../../src/context.js';
import { startEmbedded } from '../../src/database/embedded.js';
import { messageOf } from '../../src/errors.js';
import { createToken, revokeToken } from '../../src/operations/access/tokens.js';
import { importRows } from '../../src/operations/catalogue/import.js';
import { setQuota } from '../../src/operations/quotas/quotas.js';
import { openRuntime } from '../../src/runtime.js';
import { backendNames } from '../../src/tape/index.js';
import { startSweeper } from '../support/sweeping.js';
import { makeTempDir } from '../support/temp-dir.js';
import { startMail } from '../torture/mail.js';
import { createRandom } from '../torture/random.js';
import { rows, users } from './archive.js';
import { keepBounded, mountpointsOf, restoreDisks } from './keeper.js';
import { Lanes } from './lanes.js';
import type { PlantName } from './plants.js';
import { endRound, type RoundContext } from './rounds.js';
import type { Memory } from './server.js';
import { ServerProcess } from './server-process.js';
import { type Fault, Session } from './session.js';
import { tokens } from './texts.js';

export interface FuzzOptions {
  seed: number;
  inputs: number;
  /** Ends it early. */
  minutes: number;
  /** Only this input, as a fault tells it. */
  at?: string | undefined;
  /** An empty database; unless given, the fuzz has a server of its own. */
  databaseUrl?: string | undefined;
  plant?: PlantName | undefined;
  /** Ends after so many faults. */
  maxFaults: number;
  /** For all work to be done, at the end of a round. */
  settleMs: number;
  /** For the checker to be content, once nothing is left to do: for passes that run every so often. */
  patienceMs: number;
  /** Bytes of memory that may come beside a tenth: modules and compiled code of a short run. */
  slackBytes: number;
  signal: AbortSignal;
  /** A folder for what is on the heap after the first tenth and after the last. */
  snapshots?: string | undefined;
}

export interface FuzzResult {
  faults: Fault[];
  sent: number;
  seconds: number;
  /** Answers that said to come again later. */
  busy: number;
  outcomes: ReadonlyMap<string, number>;
  /** Operations that were done, by the audit. */
  deeds: ReadonlyMap<string, number>;
  /** Milliseconds that inputs of a kind took together. */
  times: ReadonlyMap<string, number>;
  /** After each tenth. */
  memory: Memory[];
  rounds: number;
}

const LANES = 24;
/** The database is looked at, and emptied, after so many inputs. */
const ROUND = 20_000;
const TENTHS = 10;
/** Of the inputs, the part that may be told to come again. */
const MAX_BUSY = 0.01;
const MAX_GROWTH = 1.1;
const PROGRESS_MS = 30_000;
/** What the last inputs have brought about may come a moment later. */
const LAST_MS = 100;

/** @param tell is given a line for people now and then */
export async function runFuzz(options: FuzzOptions, tell: (line: string) => void): Promise<FuzzResult> {
  const dir = makeTempDir('fuzz');
  const sweeper = startSweeper(dir);
  const closers: (() => Promise<unknown>)[] = [() => sweeper.sweep()];
  try {
    const dataDir = path.join(dir, 'data');
    const mail = await startMail(createRandom(options.seed));
    closers.unshift(() => mail.goAway());
    const own = options.databaseUrl === undefined ? await startDatabase(dir) : undefined;
    if (own) closers.unshift(own.close);
    const { databaseUrl = own?.url, plant } = options;
    const env = { DATA_DIR: dataDir, LOG_LEVEL: 'silent', ...(databaseUrl && { DATABASE_URL: databaseUrl }) };
    const runtime = await openRuntime(readConfig(env, backendNames));
    closers.unshift(() => runtime.close());
    const { ctx } = runtime;
    for (const quota of users) await setQuota(ctx, { ...quota, email: 'someone@example.org' });
    await importRows(ctx, [...rows]);
    await restoreDisks(ctx);
    const shown = await makeTokens(ctx);
    const server = await ServerProcess.start({ dataDir, databaseUrl, smtpUrl: mail.url, plant });
    closers.unshift(() => server.stop());
    const session = new Session(server, { connections: LANES, shown, mountpoints: mountpointsOf(ctx) });
    closers.unshift(async () => session.close());
    let told = 0;
    const progress = setInterval(() => {
      for (const fault of session.faults.slice(told)) tell(describeFault(fault, options.seed));
      told = session.faults.length;
      tell(describe(session));
    }, PROGRESS_MS);
    closers.unshift(async () => clearInterval(progress));
    const { settleMs, patienceMs, signal } = options;
    const round = { ctx, session, mail, settleMs, patienceMs, signal };
    return await run(options, round, tell);
  } finally {
    for (const close of closers) await close();
    rmSync(dir, { recursive: true, force: true });
  }
}

async function makeTokens(ctx: Context): Promise<{ name: string; secret: string }[]> {
  const made: { name: string; secret: string; id: number }[] = [];
  for (const input of tokens) {
    const { secret, token } = await createToken(ctx, input);
    made.push({ name: input.name, secret, id: token.id });
  }
  await revokeToken(ctx, made.at(-1)?.id ?? 0);
  return made;
}

/** Nothing of it has to survive a power cut. */
async function startDatabase(dir: string): Promise<{ url: string; close(): Promise<void> }> {
  const settings = { fsync: 'off', synchronous_commit: 'off', full_page_writes: 'off', max_connections: 100 };
  const { config, close } = await startEmbedded({ dataDir: path.join(dir, 'postgres'), settings });
  const { user, port, host } = config(DATABASE);
  return { url: `postgresql://${user}@localhost:${port}/${DATABASE}?host=${encodeURIComponent(String(host))}`, close };
}

const DATABASE = 'fuzz';

async function run(options: FuzzOptions, round: RoundContext, tell: (line: string) => void): Promise<FuzzResult> {
  const { session } = round;
  const start = performance.now();
  const seconds = () => (performance.now() - start) / 1000;
  const lanes = new Lanes(session, options.seed);
  const memory: Memory[] = [];
  let rounds = 0;
  let lastRound = 0;
  const isEnough = () =>
    options.signal.aborted || session.faults.length >= options.maxFaults || seconds() > options.minutes * 60;
  if (options.at !== undefined) await withKeeper(round, () => lanes.repeat(options.at ?? ''));
  for (let tenth = 1; tenth <= TENTHS && options.at === undefined && !isEnough() && !session.isOver; tenth++) {
    const end = Math.round((options.inputs * tenth) / TENTHS);
    while (session.sent < end && !isEnough() && !session.isOver) {
      const until = Math.min(end, lastRound + ROUND);
      await withKeeper(round, () => lanes.run({ lanes: LANES, until, isEnough }));
      const isLast = until === options.inputs || isEnough();
      if (session.isOver || (until < lastRound + ROUND && !isLast)) continue;
      lastRound = session.sent;
      rounds++;
      const violations = await endRound(round);
      for (const { kind, text } of violations) session.faults.push({ kind: 'invariant', text: `${kind}: ${text}` });
    }
    session.leave();
    if (!session.isOver) memory.push(await session.server.measure(snapshotOf(options, tenth)));
    tell(`${describe(session)}; ${describeMemory(memory.at(-1))}`);
  }
  await session.server.hasEnded(LAST_MS);
  if (!options.signal.aborted) {
    judgeServer(session);
    judgeMemory(session, memory, options);
    judgeBusy(session);
  }
  return {
    faults: session.faults,
    sent: session.sent,
    seconds: seconds(),
    busy: session.busy,
    outcomes: session.outcomes,
    deeds: session.deeds,
    times: session.times,
    memory,
    rounds,
  };
}

/** While the lanes send, somebody keeps house. */
async function withKeeper({ ctx, session }: RoundContext, work: () => Promise<void>): Promise<void> {
  const end = new AbortController();
  const keeping = keepBounded(ctx, session.known, end.signal);
  try {
    await work();
  } finally {
    end.abort();
    await keeping.catch((error) =>
      session.faults.push({ kind: 'unsettled', text: `housekeeping: ${messageOf(error)}` }),
    );
  }
}

/** Two that can be compared: what is in the second one only has grown. */
function snapshotOf({ snapshots, seed }: FuzzOptions, tenth: number): string | undefined {
  if (snapshots === undefined || (tenth !== 1 && tenth !== TENTHS)) return undefined;
  return path.join(snapshots, `fuzz-${seed}-${tenth}.heapsnapshot`);
}

function judgeServer(session: Session): void {
  const { end, complaints } = session.server;
  if (end !== undefined) {
    session.faults.push({
      kind: 'crash',
      text: `the server has ended: ${end}\nwhat went out last:\n${session.suspects()}`,
    });
  }
  for (const text of complaints) session.faults.push({ kind: 'warning', text });
}

/** The first tenth of the long form, of a million: by then V8 has compiled most of what it will, and has code of it. */
const WARM = 100_000;

/** @param memory after each tenth of the inputs */
function judgeMemory(
  session: Session,
  memory: readonly Memory[],
  { inputs, slackBytes }: Pick<FuzzOptions, 'inputs' | 'slackBytes'>,
): void {
  const warm = memory.findIndex((_, index) => ((index + 1) * inputs) / TENTHS >= WARM);
  const from = warm === -1 || warm === memory.length - 1 ? 0 : warm;
  const [first, last] = [memory[from], memory.at(-1)];
  if (!first || !last || memory.length < 2) return;
  // what V8 keeps free differs by a tenth of all from one look to the next, and is none that anybody has kept
  for (const name of ['heap', 'inUse'] as const) {
    if (last[name] <= first[name] * MAX_GROWTH + slackBytes) continue;
    const text = `memory (${name}) was ${megabytes(first[name])} after ${Math.round(((from + 1) * inputs) / TENTHS)} inputs, and is ${megabytes(last[name])} after the last`;
    session.faults.push({ kind: 'memory', text });
  }
}

function judgeBusy(session: Session): void {
  if (session.busy <= session.sent * MAX_BUSY) return;
  session.faults.push({ kind: 'busy', text: `${session.busy} of ${session.sent} inputs were told to come again` });
}

function describe(session: Session): string {
  const { sent, busy, faults } = session;
  return `${sent} inputs, ${session.known.acknowledged.size} requests, ${busy} told to come again, ${faults.length} faults`;
}

/** With the words that bring it again, where one input does. */
export function describeFault({ kind, text, at, input }: Fault, seed: number): string {
  return at === undefined ? `${kind}: ${text}` : `${kind}: ${text}\n  SEED=${seed} AT=${at} npm run fuzz\n  ${input}`;
}

export function describeMemory(memory: Memory | undefined): string {
  if (!memory) return 'memory unknown';
  const { heap, inUse, rss } = memory;
  return `heap ${megabytes(heap)}, in use ${megabytes(inUse)} of RSS ${megabytes(rss)}`;
}

function megabytes(bytes: number): string {
  return `${(bytes / 1_000_000).toFixed(1)} MB`;
}
