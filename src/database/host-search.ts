/**
 * Which of several servers takes writes. All are asked at once, so that one that is silent holds up nobody where another answers.
 * Where two take writes, one has been cut off and does not know: what is written to it is lost when that is found out. So neither is used.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import pg from 'pg';
import { type DatabaseHosts, errorOfHost, hostName } from './hosts.js';
import { destroy } from './line.js';
import { sql } from './sql.js';

/** So long those are waited for that have not answered when one takes writes. */
const GRACE_MS = 500;

interface Writable {
  host: pg.ClientConfig;
  client: pg.Client;
}

/**
 * @param patienceMs for the answers of all
 * @throws AggregateError with what each server says, where none takes writes; Error where two do
 */
export async function findWritable(hosts: DatabaseHosts, patienceMs: number): Promise<Writable> {
  const over = new AbortController();
  const attempts = hosts.all.map((host) => tryHost(host, patienceMs, over.signal));
  const all = Promise.allSettled(attempts);
  const first = await Promise.any(attempts).catch(() => undefined);
  if (first) await Promise.race([all, sleep(GRACE_MS, undefined, { ref: false })]);
  over.abort(new Error('another server takes writes'));
  const ends = await all;
  const found = ends.flatMap((end) => (end.status === 'fulfilled' ? [end.value] : []));
  const [chosen] = found;
  if (chosen && found.length === 1) return chosen;
  for (const { client } of found) destroy(client);
  if (chosen)
    throw new Error(`only one server may take writes, not ${found.map(({ host }) => hostName(host)).join(' and ')}`);
  const errors = ends.flatMap((end) => (end.status === 'rejected' ? [end.reason] : []));
  throw new AggregateError(errors, errors.map(({ message }) => message).join(', '));
}

/** @throws an error that names the server */
async function tryHost(host: pg.ClientConfig, patienceMs: number, signal: AbortSignal): Promise<Writable> {
  const client = new pg.Client({ ...host, connectionTimeoutMillis: 0 });
  client.on('error', () => {}); // 'end' follows
  const timer = setTimeout(() => destroy(client, new Error(`no answer in ${patienceMs / 1000} seconds`)), patienceMs);
  const stop = () => destroy(client, signal.reason);
  let isAsking = true;
  signal.addEventListener('abort', () => isAsking && stop(), { once: true });
  try {
    await client.connect();
    const { rows } = await client.query<{ isStandby: boolean }>(sql`SELECT pg_is_in_recovery() AS "isStandby"`);
    if (rows[0]?.isStandby) throw new Error('is a standby, and takes no writes');
    return { host, client };
  } catch (error) {
    destroy(client);
    throw errorOfHost(host, error);
  } finally {
    isAsking = false;
    clearTimeout(timer);
  }
}
