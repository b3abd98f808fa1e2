/**
 * Two whole Tapegates as processes, each with a database, a restore area, an engine and a gateway of its own: one with tapes, that speaks TLS and
 * asks for a token, and one to which it is to be a library. The line between them can stand still, and lead to another gateway.
 */
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import pg from 'pg';
import { type ByteRelay, startByteRelay } from './byte-relay.js';
import { makeCertificate } from './certificate.js';
import { createDatabase } from './database.js';
import { listTree } from './engine-watch.js';
import type { Gateway } from './http.js';
import {
  cleanUp,
  kill,
  makeDataDir,
  type Result,
  type Running,
  runCli,
  startCli,
  startServer,
  stop,
} from './process.js';
import { waitFor } from './wait.js';

/** What a Tapegate keeps for anybody: all of it is nothing where nobody holds a file. */
export interface Kept {
  /** Holds that wait or are on disk. */
  holds: number;
  /** Bytes charged to all quotas, and in use or reserved on all restore disks. */
  bytes: string;
  recalls: number;
  /** Stage requests. */
  bulks: number;
  /** Files that libraries may have been asked for. */
  staged: number;
  /** Files and folders in the restore area, partial ones as well. */
  tree: string[];
}

export const NOTHING: Kept = { holds: 0, bytes: '0', recalls: 0, bulks: 0, staged: 0, tree: [] };

const KEPT = `SELECT
  (SELECT count(*)::int FROM live_hold WHERE state IN ('WAITING', 'ON_DISK')) AS holds,
  ((SELECT coalesce(sum(used), 0) FROM quota) + (SELECT coalesce(sum(used + reserved), 0) FROM restore_disk))::text AS bytes,
  (SELECT count(*)::int FROM recall) AS recalls, (SELECT count(*)::int FROM bulk) AS bulks,
  (SELECT count(*)::int FROM staging) AS staged`;

/** One Tapegate's database, folders and environment. */
export class Site {
  readonly dataDir: string;
  readonly restoreDir: string;
  readonly env: Record<string, string>;
  private readonly pool: pg.Pool;
  private readonly drop: () => Promise<void>;

  private constructor(database: Awaited<ReturnType<typeof createDatabase>>, env: Record<string, string>) {
    this.dataDir = makeDataDir();
    this.restoreDir = path.join(this.dataDir, 'restore');
    this.env = { DATABASE_URL: database.url, DATA_DIR: this.dataDir, DEMO: 'off', LOG_LEVEL: 'fatal', ...env };
    this.pool = new pg.Pool({ ...database.connection, max: 1 });
    // what is closing is told that its database goes: it emits that, and so does its pool
    this.pool.on('connect', (client) => client.on('error', () => {}));
    this.pool.on('error', () => {});
    this.drop = database.drop;
  }

  static async create(env: Record<string, string> = {}): Promise<Site> {
    return new Site(await createDatabase(), env);
  }

  /** A command of its operator that must succeed. @returns what it printed */
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

  /** Fails with what is left. */
  async waitForNothing(): Promise<void> {
    let kept: Kept | undefined;
    const isNothing = async () => {
      kept = await this.readKept();
      return JSON.stringify(kept) === JSON.stringify(NOTHING);
    };
    // whoever has found the other one away rests for longer each time
    await waitFor('nothing to be left', isNothing, 150_000).catch((error: Error) => {
      throw new Error(`${error.message}: ${JSON.stringify(kept)}`);
    });
  }

  async close(): Promise<void> {
    await this.pool.end();
    await this.drop();
  }
}

/** The Tapegate with the tapes. Its gateway and its engine are processes of their own, that can be killed and started again. */
export class FarSite {
  readonly site: Site;
  readonly relay: ByteRelay;
  /** Of its authority. */
  readonly caFile: string;
  gateway: (Running & { url: string }) | undefined;
  engine: Running | undefined;

  private constructor(site: Site, relay: ByteRelay, caFile: string) {
    this.site = site;
    this.relay = relay;
    this.caFile = caFile;
  }

  static async create(): Promise<FarSite> {
    const dir = makeDataDir();
    const { cert, key } = makeCertificate();
    const [certFile, keyFile] = ['cert.pem', 'key.pem'].map((name) => path.join(dir, name)) as [string, string];
    writeFileSync(certFile, cert);
    writeFileSync(keyFile, key, { mode: 0o600 });
    const tls = { TLS_CERT: certFile, TLS_KEY: keyFile, NODE_EXTRA_CA_CERTS: certFile };
    const site = await Site.create({ AUTH: 'token', WEBDAV: 'all', DRIVES: '1', ...tls });
    return new FarSite(site, await startByteRelay(), certFile);
  }

  /** Where others find it, whichever gateway serves it. */
  get url(): string {
    return `https://127.0.0.1:${this.relay.port}`;
  }

  async startGateway(): Promise<void> {
    this.gateway = await startServer('serve', { env: this.site.env });
    this.relay.lead(Number(new URL(this.gateway.url).port));
  }

  async killGateway(): Promise<void> {
    if (this.gateway) await kill(this.gateway);
    this.relay.lead(undefined);
  }

  startEngine(): void {
    this.engine = startCli(['work'], { env: this.site.env });
  }

  async stopEngine(): Promise<void> {
    if (this.engine) await stop(this.engine);
  }

  async killEngine(): Promise<void> {
    if (this.engine) await kill(this.engine);
  }

  /** Writes files to its tapes, and nowhere else. @param files by the paths of its catalogue */
  async archive(files: ReadonlyMap<string, Uint8Array>): Promise<void> {
    const source = path.join(makeDataDir(), 'source');
    for (const [file, bytes] of files) {
      mkdirSync(path.dirname(path.join(source, file)), { recursive: true });
      writeFileSync(path.join(source, file), bytes);
    }
    await this.site.run(['archive', source, '--move']);
  }

  /** @returns the token of a user of its own, who has a quota */
  async addUser(name: string, size: string): Promise<string> {
    await this.site.run(['quota', 'set', name, '--size', size]);
    const env = { ...this.site.env, TAPEGATE_URL: this.gateway?.url ?? '' };
    const { code, stdout, stderr } = await runCli(['token', 'create', name], { env });
    if (code !== 0) throw new Error(`token create ended with ${code}: ${stderr}`);
    return stdout.trim();
  }

  async close(): Promise<void> {
    await this.relay.close();
    await this.site.close();
  }
}

/** The Tapegate to which the other one is a library. */
export class NearSite implements Gateway {
  readonly site: Site;
  readonly url: string;

  private constructor(site: Site, url: string) {
    this.site = site;
    this.url = url;
  }

  static async start(): Promise<NearSite> {
    const site = await Site.create({ DRIVES: '1' });
    const { url } = await startServer('start', { env: site.env });
    return new NearSite(site, url);
  }

  /** An operator's. */
  get token(): string {
    return readFileSync(path.join(this.site.dataDir, 'operator.token'), 'utf8').trim();
  }
}

/** Ends all processes first: a database cannot go before them. */
export async function closeSites(far: FarSite | undefined, near: NearSite | undefined): Promise<void> {
  await cleanUp();
  await far?.close();
  await near?.site.close();
}
