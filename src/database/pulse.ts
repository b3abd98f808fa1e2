/**
 * Checks on a connection of its own whether the database answers, and what time it has. If it does not answer, the loss is logged once, all
 * connections are cut, and the recovery is logged. Of several servers, it finds the one that takes writes.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type pg from 'pg';
import { codeOf, type FailureLog, isExhausted, messageOf } from '../errors.js';
import type { DatabaseClock } from './clock.js';
import { type DatabaseHosts, hostName } from './hosts.js';
import { destroy, type Line, SocketClient } from './line.js';
import { sql } from './sql.js';

interface PulseOptions {
  hosts: DatabaseHosts;
  line: Line;
  clock: DatabaseClock;
  log: FailureLog;
  /** A database that is silent for so long is lost; shorter than a lease. */
  lostMs?: number;
}

const LOST_MS = 10_000;
const BEAT_MS = 2000;
const FIRST_BEATS = 3;
/** Between attempts to find it again. */
const SEARCH_MS = 500;
/** Of several servers one that says nothing for so long is passed over, unless there is no other. */
const HOST_MS = 3000;
/** Silence is counted in so many steps. */
const STEPS = 10;
/** A host whose clock is off by more says so, and again when it is off by less than half of it. */
const CLOCK_SECONDS = 5;

const TOO_MANY_CONNECTIONS = '53300';

export class Pulse {
  private readonly options: PulseOptions;
  private readonly lostMs: number;
  private client: pg.Client | undefined;
  private lostAt: number | undefined;
  /** Steps of silence since the last answer. */
  private silence = 0;
  private isOff = false;
  private isClosed = false;
  private wake = () => {};
  private running: Promise<void> | undefined;

  constructor(options: PulseOptions) {
    this.options = options;
    this.lostMs = options.lostMs ?? LOST_MS;
  }

  /** Asks for the first time, and from then on. @throws what keeps the database from answering */
  async start(): Promise<void> {
    // the quickest answer says best what time it is
    for (let n = 0; n < FIRST_BEATS; n++) await this.beat();
    this.running = this.run();
  }

  /** The same of a server that need not be there yet. */
  follow(): void {
    this.running = this.run();
  }

  /** False as soon as an answer is overdue. */
  get isAnswering(): boolean {
    return this.lostAt === undefined && this.silence < STEPS / 4;
  }

  async close(): Promise<void> {
    this.isClosed = true;
    this.drop();
    this.wake();
    await this.running;
  }

  private async run(): Promise<void> {
    while (!this.isClosed) {
      const hadClient = this.client !== undefined;
      try {
        await this.beat();
        this.find();
        await this.rest(BEAT_MS);
      } catch (error) {
        if (this.isClosed) return;
        const wasSilent = this.silence >= STEPS;
        this.drop();
        // a connection may break by itself
        if (hadClient && !wasSilent) continue;
        if (!causesOf(error).some(isThere)) this.lose(error);
        await this.rest(SEARCH_MS);
      }
    }
  }

  private async beat(): Promise<void> {
    this.client ??= await this.connect();
    const from = performance.now();
    const { rows } = await this.within(
      this.client.query<{ micros: string; isStandby: boolean }>(
        sql`SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint::text AS micros, pg_is_in_recovery() AS "isStandby"`,
      ),
    );
    // of one server nobody else takes the writes, and what it has may be read
    if (rows[0]?.isStandby && this.options.hosts.areSeveral) throw new Error('it takes no writes any more');
    this.options.clock.set(Number(rows[0]?.micros), { from, until: performance.now() });
    this.compareClocks();
  }

  private async connect(): Promise<pg.Client> {
    const { hosts } = this.options;
    const client = hosts.areSeveral ? await this.search() : await this.open(hosts.current);
    client.on('end', () => {
      if (this.client !== client) return;
      this.client = undefined;
      this.wake(); // whether the server is still there is worth knowing at once
    });
    return client;
  }

  private async open(host: pg.ClientConfig): Promise<pg.Client> {
    const client = new SocketClient({ ...host, connectionTimeoutMillis: 0 });
    client.on('error', () => {}); // 'end' follows
    try {
      await this.within(client.connect());
      return client;
    } catch (error) {
      destroy(client);
      throw error;
    }
  }

  /** Whoever is connected to another server than the one that takes writes now is cut off, and comes back there. */
  private async search(): Promise<pg.Client> {
    const { hosts, line, log } = this.options;
    const { host, client } = await this.within(findWritable(hosts, Math.min(HOST_MS, this.lostMs / 2)));
    if (host === hosts.current) return client;
    log.warn({ host: hostName(host) }, 'the database is at another server');
    hosts.current = host;
    line.drop();
    return client;
  }

  /** Rejects after `lostMs` of silence. In time in which this process itself stood still nobody could answer it. */
  private async within<T>(answer: Promise<T>): Promise<T> {
    this.silence = 0;
    let timer: NodeJS.Timeout | undefined;
    const silent = new Promise<never>((_resolve, reject) => {
      timer = setInterval(() => {
        if (++this.silence >= STEPS)
          reject(Object.assign(new Error(`no answer in ${this.lostMs / 1000} seconds`), { code: 'ETIMEDOUT' }));
      }, this.lostMs / STEPS);
    });
    try {
      const answered = await Promise.race([answer, silent]);
      this.silence = 0;
      return answered;
    } finally {
      clearInterval(timer);
      answer.catch(() => {}); // it is too late
    }
  }

  private lose(error: unknown): void {
    if (this.lostAt !== undefined) return;
    this.lostAt = performance.now();
    this.options.line.cut();
    const causes = causesOf(error);
    this.options.log.error({ reason: causes.map(messageOf).join(', ') }, 'database lost');
  }

  private find(): void {
    if (this.lostAt === undefined) return;
    const seconds = Math.round((performance.now() - this.lostAt) / 1000);
    this.lostAt = undefined;
    this.options.line.mend();
    this.options.log.warn({ seconds }, 'database back');
  }

  private compareClocks(): void {
    const ahead = this.options.clock.hostAheadSeconds;
    const isOff = Math.abs(ahead) > (this.isOff ? CLOCK_SECONDS / 2 : CLOCK_SECONDS);
    if (isOff === this.isOff) return;
    this.isOff = isOff;
    const side = ahead > 0 ? 'ahead of' : 'behind';
    const text = isOff
      ? `the clock of this host is ${Math.abs(Math.round(ahead))} seconds ${side} the database's, which counts: set it right`
      : "the clock of this host agrees with the database's again";
    this.options.log.warn({ seconds: Math.round(ahead) }, text);
  }

  private drop(): void {
    const client = this.client;
    this.client = undefined;
    if (client) destroy(client);
  }

  private async rest(ms: number): Promise<void> {
    const woken = new AbortController();
    this.wake = () => woken.abort();
    await sleep(ms, undefined, { signal: woken.signal, ref: false }).catch(() => {}); // woken by an end
  }
}

function causesOf(error: unknown): unknown[] {
  return error instanceof AggregateError ? error.errors : [error];
}

/** A server that has no connection left is there, and so is one that this process cannot reach for its own sake. */
function isThere(error: unknown): boolean {
  return codeOf(error) === TOO_MANY_CONNECTIONS || isExhausted(error);
}

/** How long the search waits for other servers after one says that it takes writes. */
const GRACE_MS = 500;

/**
 * Connects to the server that takes writes. It asks all at once, so that a silent one does not delay the others.
 * @param patienceMs for the answers of all
 * @throws AggregateError with the problem of each server; Error if two take writes: one was cut off, and what is written to it is lost
 */
async function findWritable(
  hosts: DatabaseHosts,
  patienceMs: number,
): Promise<{ host: pg.ClientConfig; client: pg.Client }> {
  const silent = new Set<pg.Client>();
  const giveUp = (reason: Error) => {
    for (const client of silent) destroy(client, reason);
  };
  const attempts = hosts.all.map(async (host) => {
    const client = new SocketClient({ ...host, connectionTimeoutMillis: 0 });
    client.on('error', () => {}); // 'end' follows
    silent.add(client);
    try {
      await refuseStandby(client);
      return { host, client };
    } catch (error) {
      destroy(client);
      throw errorOfHost(host, error);
    } finally {
      silent.delete(client);
    }
  });
  const timer = setTimeout(() => giveUp(new Error(`no answer in ${patienceMs / 1000} seconds`)), patienceMs);
  const all = Promise.allSettled(attempts);
  const first = await Promise.any(attempts).catch(() => undefined);
  if (first) await Promise.race([all, sleep(GRACE_MS, undefined, { ref: false })]);
  giveUp(new Error('another server takes writes'));
  const ends = await all;
  clearTimeout(timer);
  const found = ends.flatMap((end) => (end.status === 'fulfilled' ? [end.value] : []));
  const [chosen] = found;
  if (chosen && found.length === 1) return chosen;
  for (const { client } of found) destroy(client);
  if (chosen)
    throw new Error(`only one server may take writes, not ${found.map(({ host }) => hostName(host)).join(' and ')}`);
  const errors = ends.flatMap((end) => (end.status === 'rejected' ? [end.reason] : []));
  throw new AggregateError(errors, errors.map(({ message }) => message).join(', '));
}

async function refuseStandby(client: pg.Client): Promise<void> {
  await client.connect();
  const { rows } = await client.query<{ isStandby: boolean }>(sql`SELECT pg_is_in_recovery() AS "isStandby"`);
  if (rows[0]?.isStandby) throw new Error('is a standby, and takes no writes');
}

/** Names the server in an error, and keeps its code. */
function errorOfHost(host: pg.ClientConfig, error: unknown): Error {
  const code = codeOf(error);
  const named = new Error(`${hostName(host)}: ${messageOf(error)}`, { cause: error });
  return code === undefined ? named : Object.assign(named, { code });
}
