/**
 * Two Tapegates in the test's process, each with its own database, restore area, engine and gateway.
 * The far Tapegate has tapes, and requires TLS and a token. The near Tapegate uses the far one as a library.
 * The connection between the sites can stall, break, and lead to another gateway.
 */
import { mkdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import pg from 'pg';
import { addSeconds } from '../../src/core/time.js';
import { makeCertificate } from './certificate.js';
import { currentTime } from './clock.js';
import { createDatabase } from './database.js';
import { listTree } from './engine-watch.js';
import type { Gateway } from './http.js';
import { LIBRARY_ENV } from './library-dir.js';
import { cleanUp, kill, type LocalServer, type Result, type Running, runCli, serveHere, startCli } from './process.js';
import { startTcpRelay, type TcpRelay } from './tcp-relay.js';
import { makeTempDir } from './temp-dir.js';
import { waitFor } from './wait.js';
import { type LocalEngine, workHere } from './work.js';

/** Rows, bytes and files that exist in a Tapegate for its requests. */
interface Kept {
  /** Number of request files that wait or are on disk. */
  requestFiles: number;
  /** Used bytes of all quotas, and used and reserved bytes of all restore disks. */
  bytes: string;
  recalls: number;
  /** Number of stage requests. */
  stageRequests: number;
  /** Number of files that are staged from libraries. */
  staged: number;
  /** Paths in the restore area, including partial files. */
  tree: string[];
}

const NOTHING: Kept = { requestFiles: 0, bytes: '0', recalls: 0, stageRequests: 0, staged: 0, tree: [] };

const KEPT = `SELECT
  (SELECT count(*)::int FROM live_request_file WHERE state IN ('WAITING', 'ON_DISK')) AS "requestFiles",
  ((SELECT coalesce(sum(used), 0) FROM quota) + (SELECT coalesce(sum(used + reserved), 0) FROM restore_disk))::text AS bytes,
  (SELECT count(*)::int FROM recall) AS recalls, (SELECT count(*)::int FROM stage_request) AS "stageRequests",
  (SELECT count(*)::int FROM staging) AS staged`;

/** Database, directories and environment of a Tapegate. */
class Site {
  readonly dataDir: string;
  readonly restoreDir: string;
  readonly env: Record<string, string>;
  private readonly pool: pg.Pool;
  private readonly drop: () => Promise<void>;

  private constructor(database: Awaited<ReturnType<typeof createDatabase>>, env: Record<string, string>) {
    this.dataDir = makeTempDir();
    this.restoreDir = path.join(this.dataDir, 'restore');
    this.env = { DATABASE_URL: database.url, DATA_DIR: this.dataDir, DEMO: 'off', LOG_LEVEL: 'fatal', ...env };
    this.pool = new pg.Pool({ ...database.connection, max: 1 });
    // ignore the errors that the pool and its client emit when the database is dropped
    this.pool.on('connect', (client) => client.on('error', () => {}));
    this.pool.on('error', () => {});
    this.drop = database.drop;
  }

  static async create(env: Record<string, string> = {}): Promise<Site> {
    return new Site(await createDatabase(), env);
  }

  /** Runs a command on this Tapegate. Throws an error if the command fails. @returns the standard output */
  async run(args: string[], stdin = ''): Promise<string> {
    const { code, stdout, stderr }: Result = await runCli(args, { env: this.env, stdin });
    if (code !== 0) throw new Error(`tapegate ${args.join(' ')} ended with ${code}: ${stdout}${stderr}`);
    return stdout;
  }

  async query<Row extends object>(sql: string, values: unknown[] = []): Promise<Row[]> {
    return (await this.pool.query<Row>(sql, values)).rows;
  }

  async readKept(): Promise<Kept> {
    const [row] = await this.query<Omit<Kept, 'tree'>>(KEPT);
    return { ...NOTHING, ...row, tree: listTree(this.restoreDir) };
  }

  /**
   * Waits until no rows, bytes and files of requests exist. On timeout, fails with the remaining rows, bytes and files.
   */
  async waitForNothing(): Promise<void> {
    let kept: Kept | undefined;
    const isNothing = async () => {
      kept = await this.readKept();
      return JSON.stringify(kept) === JSON.stringify(NOTHING);
    };
    // a long limit, because the pause grows after each failed call
    await waitFor('the end of all requests', isNothing, 150_000).catch((error: Error) => {
      throw new Error(`${error.message}: ${JSON.stringify(kept)}`);
    });
  }

  async close(): Promise<void> {
    await this.pool.end();
    await this.drop();
  }
}

/** The far Tapegate, which has tapes. Tests can stop and start the gateway and the engine. */
export class FarSite {
  readonly site: Site;
  readonly relay: TcpRelay;
  /** Path of the gateway's self-signed certificate. */
  readonly caFile: string;
  gateway: LocalServer | undefined;
  private engine: LocalEngine | undefined;

  private constructor(site: Site, relay: TcpRelay, caFile: string) {
    this.site = site;
    this.relay = relay;
    this.caFile = caFile;
  }

  static async create(): Promise<FarSite> {
    const dir = makeTempDir();
    const { cert, key } = makeCertificate();
    const [certFile, keyFile] = ['cert.pem', 'key.pem'].map((name) => path.join(dir, name)) as [string, string];
    writeFileSync(certFile, cert);
    writeFileSync(keyFile, key, { mode: 0o600 });
    const tls = { TAPEGATE_TLS_CERT: certFile, TAPEGATE_TLS_KEY: keyFile, NODE_EXTRA_CA_CERTS: certFile };
    const site = await Site.create({ TAPEGATE_AUTH: 'token', TAPEGATE_WEBDAV: 'all', DRIVES: '1', ...tls });
    return new FarSite(site, await startTcpRelay(), certFile);
  }

  /** URL of the relay, which is the same for every gateway. */
  get url(): string {
    return `https://127.0.0.1:${this.relay.port}`;
  }

  async startGateway(): Promise<void> {
    this.gateway = await serveHere(this.site.env);
    this.relay.lead({ host: '127.0.0.1', port: Number(new URL(this.gateway.url).port) });
    await this.relay.accept();
  }

  /** Breaks all connections, and stops the gateway. */
  async loseGateway(): Promise<void> {
    await this.relay.refuse();
    await this.gateway?.stop();
  }

  /** Stops the gateway in the middle of a response, after the gateway has sent at least `bytes` more bytes. */
  async loseGatewayAfter(bytes: number): Promise<void> {
    let left = bytes;
    await new Promise<void>((resolve) => {
      this.relay.watch((chunk, from) => {
        if (from === 'server') left -= chunk.length;
        if (left > 0) return;
        this.relay.freeze();
        resolve();
      });
    });
    this.relay.watch(() => {});
    await this.loseGateway();
    this.relay.thaw();
  }

  async startEngine(): Promise<void> {
    this.engine = await workHere(this.site.env);
  }

  async stopEngine(): Promise<void> {
    await this.engine?.stop();
    this.engine = undefined;
  }

  /** Runs the engine as a process until `whenToKill` resolves, kills the engine, and ends its lease. */
  async whileEngineIsKilled(whenToKill: () => Promise<void>): Promise<void> {
    await this.stopEngine();
    const engine: Running = startCli(['work'], { env: this.site.env });
    await whenToKill();
    await kill(engine);
    await this.site.query(`UPDATE drive SET lease_until = timezone('utc', now()) WHERE lease_until IS NOT NULL`);
  }

  /** Writes files to the tapes of this Tapegate. @param files bytes by catalogue path */
  async archive(files: ReadonlyMap<string, Uint8Array>): Promise<void> {
    const source = path.join(makeTempDir(), 'source');
    for (const [file, bytes] of files) {
      mkdirSync(path.dirname(path.join(source, file)), { recursive: true });
      writeFileSync(path.join(source, file), bytes);
    }
    await this.site.run(['archive', source, '--move']);
  }

  /** Adds a user with a quota. @returns a token of the user */
  async addUser(name: string, size: string): Promise<string> {
    await this.site.run(['quota', 'set', name, '--size', size]);
    return (await this.site.run(['token', 'create', name])).trim();
  }

  async close(): Promise<void> {
    await this.stopEngine();
    await this.relay.close();
    await this.site.close();
  }
}

/** The near Tapegate, which uses the far one as a library. */
export class NearSite implements Gateway {
  readonly site: Site;
  readonly url: string;
  /** Token of an operator. */
  readonly token: string;
  private readonly engine: LocalEngine;

  private constructor(site: Site, { url, token }: { url: string; token: string }, engine: LocalEngine) {
    this.site = site;
    this.url = url;
    this.token = token;
    this.engine = engine;
  }

  static async start(): Promise<NearSite> {
    const site = await Site.create({ DRIVES: '1', ...LIBRARY_ENV });
    const { url } = await serveHere(site.env);
    const token = (await site.run(['token', 'create', 'ops', '--role', 'operator'])).trim();
    // the engine's clock runs 20 times faster, which shortens its pauses between polls and retries
    const startedAt = performance.now();
    const now = () => addSeconds(currentTime(), (20 * (performance.now() - startedAt)) / 1000);
    return new NearSite(site, { url, token }, await workHere(site.env, { now, idleMs: 100 }));
  }

  async close(): Promise<void> {
    await this.engine.stop();
    await this.site.close();
  }
}

export async function closeSites(far: FarSite | undefined, near: NearSite | undefined): Promise<void> {
  await cleanUp();
  await near?.close();
  await far?.close();
}
