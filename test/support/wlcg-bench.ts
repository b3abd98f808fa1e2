/** Libraries of type `wlcg` on a simulated server, for the contract suite of staging libraries and other tests. */
import { rmSync } from 'node:fs';
import { parseSettings } from '../../src/tape/kind.js';
import type { StagingLibrary } from '../../src/tape/staging.js';
import { wlcg } from '../../src/tape/wlcg/index.js';
import { makeCertificate } from './certificate.js';
import { addSecret, LIBRARY_ENV, secretFile } from './library-dir.js';
import type { StagingBench } from './staging-library.js';
import { makeTempDir } from './temp-dir.js';
import type { DialectName } from './wlcg-dialects.js';
import { WlcgServer } from './wlcg-server.js';

export interface WlcgBench extends StagingBench {
  server: WlcgServer;
  /** Files with the server's certificate and with the token. */
  files: { caFile: string; tokenFile: string };
  /** Settings of a library on the server. */
  settings: object;
  /** Opens another library on the same server. */
  open(settings?: object): StagingLibrary;
}

interface WlcgBenchOptions {
  tls?: boolean;
  settings?: object;
  /** Certificate authority of clients' certificates, which then replace the token. */
  clients?: string;
}

/** Starts a server, with TLS if `tls` is set, and creates a library on the server. */
export async function createWlcgBench(
  dialect: DialectName,
  { tls = false, settings = {}, clients }: WlcgBenchOptions = {},
): Promise<WlcgBench> {
  const dir = makeTempDir();
  const certificate = tls ? makeCertificate() : undefined;
  const [caFile, tokenFile] = [addSecret(certificate?.cert ?? ''), addSecret('a.bearer.token\n')];
  const files = { caFile: secretFile(caFile), tokenFile: secretFile(tokenFile) };
  const known = clients === undefined ? { token: 'a.bearer.token' } : { clients };
  const server = new WlcgServer({ dialect, ...known, ...(certificate ? { certificate } : {}) });
  await server.listen();
  const common = {
    url: server.origin,
    tokenFile,
    ...(tls ? { caFile } : {}),
    releases: server.dialect.releases,
    ...settings,
  };
  const open = (more: object = {}) =>
    wlcg.create(parseSettings(wlcg.settings, { ...common, ...more }), { name: 'tape', dataDir: dir, env: LIBRARY_ENV });
  const { storage } = server;
  return {
    server,
    files,
    settings: common,
    open,
    library: open(),
    reopen: () => open(),
    put: async (file, bytes) => storage.put(file, bytes),
    arrive: async (paths) => storage.arrive(paths),
    // StoRM does not report lost files: the file disappears from the file system
    spoil: async (file, how) =>
      dialect === 'storm' && how === 'lost' ? void storage.tape.delete(file) : storage.spoil(file, how),
    evict: async (file) => storage.evict(file),
    forget: async () => storage.forget(),
    lose: async (call) => server.lose(call),
    busy: async (seconds) => server.busy(seconds),
    isStaged: async (file) => storage.isStaged(file),
    countReads: async () => server.reads,
    close: async () => {
      await server.close();
      rmSync(dir, { recursive: true, force: true });
    },
  };
}
