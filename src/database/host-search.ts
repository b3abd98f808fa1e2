/** The search for the one of several servers that takes writes. */
import { setTimeout as sleep } from 'node:timers/promises';
import type pg from 'pg';
import { codeOf, messageOf } from '../errors.js';
import { type DatabaseHosts, hostName } from './hosts.js';
import { destroy, SocketClient } from './line.js';
import { sql } from './sql.js';

/** How long the search waits for other servers after one says that it takes writes. */
const GRACE_MS = 500;

/**
 * Connects to the server that takes writes. It asks all at once, so that a silent one does not delay the others.
 * @param patienceMs for the answers of all
 * @throws AggregateError with the problem of each server; Error if two take writes: one was cut off, and what is written to it is lost
 */
export async function findWritable(
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
