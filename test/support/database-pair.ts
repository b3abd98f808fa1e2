/** A PostgreSQL primary and a standby, each behind a relay. A DATABASE_URL can name both servers. */
import { execFileSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import path from 'node:path';
import pg from 'pg';
import { makeBackup } from '../../src/db/backup/make.js';
import { type Embedded, startEmbedded } from '../../src/db/embedded/embedded.js';
import { queryOnce } from './database.js';
import { startDatabaseRelay } from './tcp-relay.js';
import { waitFor } from './wait.js';

export type DatabasePair = Awaited<ReturnType<typeof startDatabasePair>>;

const OWN = { fsync: 'off', full_page_writes: 'off' };

/** @param standbySettings PostgreSQL settings of standbys, such as a replay delay */
export async function startDatabasePair(dir: string, database: string, standbySettings: Record<string, string> = {}) {
  const one = path.join(dir, 'primary/postgres');
  const leader = await startEmbedded({ dataDir: one, settings: OWN });
  await leader.ensureDatabase(database);
  await letFollow(one, leader);
  const primary = await startDatabaseRelay(leader.config(database));
  const { port } = primary.through({});
  const primary_conninfo = `host=127.0.0.1 port=${port} user=postgres`;
  const startStandby = async (name: string) => {
    const other = path.join(dir, name, 'postgres');
    await copyCluster(one, other, leader);
    const server = await startEmbedded({ dataDir: other, settings: { ...OWN, primary_conninfo, ...standbySettings } });
    return { server, relay: await startDatabaseRelay(server.config(database)) };
  };
  const { server: follower, relay: standby } = await startStandby('standby');
  const others: Awaited<ReturnType<typeof startStandby>>[] = [];
  const hosts = [standby, primary].map((relay) => `127.0.0.1:${relay.through({}).port}`);
  const urlOf = (host = '') => `postgresql://postgres@${host}/${database}`;
  return {
    primary,
    standby,
    /** DATABASE_URL with both hosts, the standby first. */
    url: urlOf(hosts.join(',')),
    standbyUrl: urlOf(hosts[0]),
    primaryUrl: urlOf(hosts[1]),
    /** Sends a query to the standby, not through the relay. */
    askStandby: (text: string) => ask(follower, text, database),
    askPrimary: (text: string) => ask(leader, text, database),
    /** Starts another standby. @returns its URL */
    addStandby: async (): Promise<string> => {
      const added = await startStandby(`standby-${others.length}`);
      others.push(added);
      return urlOf(`127.0.0.1:${added.relay.through({}).port}`);
    },
    /** Opens a connection to the primary, which the caller must close. */
    connectPrimary: async (): Promise<pg.Client> => {
      const client = new pg.Client(leader.config(database));
      await client.connect();
      return client;
    },
    /** Waits until the standby has replayed all changes of the primary. */
    catchUp: async (): Promise<void> => {
      const [row] = await ask(leader, 'SELECT pg_current_wal_lsn()::text AS lsn');
      await waitFor('the standby to catch up', async () => {
        const [seen] = await ask(follower, `SELECT pg_last_wal_replay_lsn() >= '${row?.lsn}' AS has`);
        return seen?.has === true;
      });
    },
    promote: async (): Promise<void> => void (await ask(follower, 'SELECT pg_promote()')),
    close: async (): Promise<void> => {
      await primary.close();
      await standby.close();
      for (const { server, relay } of others) {
        await relay.close();
        await server.close();
      }
      await follower.close();
      await leader.close();
    },
  };
}

const ask = (server: Embedded, sql: string, database = 'postgres') => queryOnce(server.config(database), sql);

/** Allows replication connections to a server. */
async function letFollow(dataDir: string, server: Embedded): Promise<void> {
  const rules = ['all', 'replication'].map((what) => `local ${what} all peer map=tapegate\n`);
  writeFileSync(path.join(dataDir, 'pg_hba.conf'), rules.join(''));
  await ask(server, 'SELECT pg_reload_conf()');
}

/** Creates the data directory of a standby from a backup of the running server. */
async function copyCluster(from: string, to: string, server: Embedded): Promise<void> {
  const target = path.dirname(to);
  await makeBackup({ dataDir: from, connection: server.config('postgres'), target, program: 'test' });
  writeFileSync(path.join(to, 'standby.signal'), '');
  execFileSync('chown', ['-R', `--reference=${from}`, target]);
}
