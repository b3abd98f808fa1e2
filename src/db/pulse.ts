/**
 * Checks on a separate connection whether the database answers, and reads the database's clock. If the database does
 * not answer, closes all connections. Logs only the start and the end of an outage. If there are several servers, finds
 * the server that accepts writes. The same connection also listens for notifications.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import pg from 'pg';
import { codeOf, type FailureLog, isExhausted, messageOf } from '../core/errors.js';
import type { DatabaseClock } from './clock.js';
import { type DatabaseHosts, hostName } from './hosts.js';
import { connect, destroy, type Line, SocketClient } from './line.js';
import { sql } from './sql.js';

interface PulseOptions {
  hosts: DatabaseHosts;
  line: Line;
  clock: DatabaseClock;
  log: FailureLog;
  /** Milliseconds without an answer after which the database counts as unreachable. Must be shorter than a lease. */
  lostMs?: number;
}

const LOST_MS = 10_000;
const BEAT_MS = 2000;
const FIRST_BEATS = 3;
const SEARCH_MS = 500;
/** Time limit in milliseconds for one server's answer if the database has several servers. */
const HOST_MS = 3000;
/** The time limit `lostMs` is measured as this number of timer intervals. */
const STEPS = 10;

const TOO_MANY_CONNECTIONS = '53300';
const LISTEN = sql`SET application_name = 'tapegate events'; LISTEN tapegate`;

interface Listener {
  /**
   * Called whenever a connection begins to listen. The process might have missed notifications that were sent earlier.
   */
  onBegin(): void;
  onNotification(payload: string | undefined): void;
  onEnd(): void;
}

export class Pulse {
  /** Called after each answer from the database. A failure or delay of this callback does not affect the checks. */
  onBeat: () => Promise<void> = async () => {};
  private readonly options: PulseOptions;
  private readonly lostMs: number;
  private client: pg.Client | undefined;
  private readonly listeners = new Set<Listener>();
  private listening: pg.Client | undefined;
  private lostAt: number | undefined;
  /** Number of timer intervals (`lostMs / STEPS`) that have passed without an answer. */
  private silence = 0;
  private isClosed = false;
  private wake = () => {};
  private running: Promise<void> | undefined;

  constructor(options: PulseOptions) {
    this.options = options;
    this.lostMs = options.lostMs ?? LOST_MS;
  }

  /**
   * Checks the database now, and then periodically.
   * @throws Error that says why the database does not answer
   */
  async start(): Promise<void> {
    // check several times, because the fastest answer gives the most exact time
    for (let n = 0; n < FIRST_BEATS; n++) await this.beat();
    this.follow();
  }

  /** Starts the periodic checks, even if the server does not answer yet. */
  follow(): void {
    // close the connection when `run` ends, because `run` might open a connection even after a call of `close`
    this.running = this.run().finally(() => this.drop());
  }

  /**
   * Listens for notifications on the channel `tapegate`. Listens again after each reconnection.
   * @returns a function that stops listening
   */
  async listen(listener: Listener): Promise<() => void> {
    this.listeners.add(listener);
    if (this.listening && this.listening === this.client) listener.onBegin();
    // ignore the error: if this connection has failed, the next connection will listen
    else await this.beginListening().catch(() => {});
    return () => this.listeners.delete(listener);
  }

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
      let hadClient = this.client !== undefined;
      try {
        await this.beat();
        hadClient = true;
        this.find();
        // call `find` before listening, because `find` allows the process's other connections to reconnect
        await this.beginListening();
        void this.onBeat();
        await this.rest(BEAT_MS);
      } catch (error) {
        if (this.isClosed) return;
        const wasSilent = this.silence >= STEPS;
        this.drop();
        // check again immediately, because the connection might have failed although the server works
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
    // accept a standby if it is the only server, because a standby can still serve reads
    if (rows[0]?.isStandby && this.options.hosts.areSeveral) throw new Error('the server no longer accepts writes');
    this.options.clock.set(Number(rows[0]?.micros), { from, until: performance.now() });
  }

  /**
   * Listens for notifications on the current connection. If the server refuses, as a standby does, tries again after
   * the server's next answer.
   */
  private async beginListening(): Promise<void> {
    const { client, listeners } = this;
    if (!client || listeners.size === 0 || this.listening === client) return;
    this.listening = client;
    const onNotification = ({ payload }: pg.Notification) => {
      for (const each of listeners) each.onNotification(payload);
    };
    const onEnd = () => {
      for (const each of listeners) each.onEnd();
    };
    client.on('notification', onNotification).once('end', onEnd);
    try {
      await this.within(client.query(LISTEN));
    } catch (error) {
      if (isRefusal(error)) {
        client.off('notification', onNotification).off('end', onEnd);
        this.listening = undefined;
        return;
      }
      destroy(client);
      throw error;
    }
    for (const each of listeners) each.onBegin();
  }

  private async connect(): Promise<pg.Client> {
    const { hosts } = this.options;
    const client = hosts.areSeveral ? await this.search() : await this.open(hosts.current);
    client.on('end', () => {
      if (this.client !== client) return;
      this.client = undefined;
      this.wake();
    });
    return client;
  }

  private async open(host: pg.ClientConfig): Promise<pg.Client> {
    const made: pg.Client[] = [];
    const make = () => {
      const client = new SocketClient({ ...host, connectionTimeoutMillis: 0 });
      made.push(client);
      return client;
    };
    try {
      return await this.within(connect(make));
    } catch (error) {
      for (const client of made) destroy(client);
      throw error;
    }
  }

  /**
   * Connects to the server that accepts writes. If a different server accepted writes until now, closes all connections
   * to that server.
   */
  private async search(): Promise<pg.Client> {
    const { hosts, line, log } = this.options;
    const { host, client } = await this.within(findWritable(hosts, Math.min(HOST_MS, this.lostMs / 2)));
    if (host === hosts.current) return client;
    log.warn({ host: hostName(host) }, 'another server accepts writes now');
    hosts.current = host;
    line.drop();
    return client;
  }

  /**
   * Waits for an answer, and rejects if no answer arrives within `lostMs`. Measures the time by counting timer
   * intervals, so that time during which this process is suspended or busy does not count.
   */
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
      answer.catch(() => {}); // ignore the error from a late answer
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

  private drop(): void {
    const client = this.client;
    this.client = undefined;
    if (client) destroy(client);
  }

  private async rest(ms: number): Promise<void> {
    if (this.isClosed) return;
    const woken = new AbortController();
    this.wake = () => woken.abort();
    // ignore the error if `wake` ends the sleep
    await sleep(ms, undefined, { signal: woken.signal, ref: false }).catch(() => {});
  }
}

/** Returns true if the server rejected a statement, and false if the server is shutting down. */
function isRefusal(error: unknown): boolean {
  return error instanceof pg.DatabaseError && !error.code?.startsWith('57P');
}

function causesOf(error: unknown): unknown[] {
  return error instanceof AggregateError ? error.errors : [error];
}

/** Returns whether an error shows that the server is up, although this process could not connect. */
function isThere(error: unknown): boolean {
  return codeOf(error) === TOO_MANY_CONNECTIONS || isExhausted(error);
}

/** Milliseconds for which the search waits for other servers after one server reports that it accepts writes. */
const GRACE_MS = 500;

/**
 * Connects to the server that accepts writes. Queries all servers in parallel, so that a server that does not answer
 * does not delay the search.
 * @param patienceMs the time limit for all answers, in milliseconds
 * @throws AggregateError with each server's problem if no server accepts writes
 * @throws Error if two servers accept writes, because writes to an isolated server would be lost
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
    client.on('error', () => {});
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
  giveUp(new Error('another server accepts writes'));
  const ends = await all;
  clearTimeout(timer);
  const found = ends.flatMap((end) => (end.status === 'fulfilled' ? [end.value] : []));
  const [chosen] = found;
  if (chosen && found.length === 1) return chosen;
  for (const { client } of found) destroy(client);
  if (chosen)
    throw new Error(
      `only one server may accept writes, but several do: ${found.map(({ host }) => hostName(host)).join(' and ')}`,
    );
  const errors = ends.flatMap((end) => (end.status === 'rejected' ? [end.reason] : []));
  throw new AggregateError(errors, errors.map(({ message }) => message).join(', '));
}

async function refuseStandby(client: pg.Client): Promise<void> {
  await client.connect();
  const { rows } = await client.query<{ isStandby: boolean }>(sql`SELECT pg_is_in_recovery() AS "isStandby"`);
  if (rows[0]?.isStandby) throw new Error('is a standby, and does not accept writes');
}

function errorOfHost(host: pg.ClientConfig, error: unknown): Error {
  const code = codeOf(error);
  const named = new Error(`${hostName(host)}: ${messageOf(error)}`, { cause: error });
  return code === undefined ? named : Object.assign(named, { code });
}
