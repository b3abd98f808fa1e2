/** S3 libraries on a simulated S3 server. */

import { test } from 'vitest';
import { parseSettings } from '../../src/tape/kind.js';
import { s3 } from '../../src/tape/s3/index.js';
import type { StagingLibrary } from '../../src/tape/staging.js';
import { addSecret, LIBRARY_ENV } from './library-dir.js';
import { type S3Server, startS3Server } from './s3-server.js';
import { S3Error } from './s3-store.js';
import type { StagingBench } from './staging-library.js';

export interface S3Bench extends StagingBench {
  server: S3Server;
  /** Settings of a library on the server, and the environment variables to which the settings refer. */
  settings: object;
  env: Record<string, string>;
  /** Opens another library on the same server with other settings. */
  open(settings?: object, env?: Record<string, string>): StagingLibrary;
}

const PREFIX = 'cold/';

/** Returns the key in the bucket for a file of the bench. */
export function keyIn(path: string): string {
  return PREFIX + path.slice(1);
}

export async function createS3Bench(given: object = {}): Promise<S3Bench> {
  const server = await startS3Server();
  const { accessKeyId, secretAccessKey, region } = server.account;
  const section = `[default]\naws_access_key_id=${accessKeyId}\naws_secret_access_key=${secretAccessKey}\n`;
  const known = LIBRARY_ENV;
  const common = {
    ...{ bucket: server.bucket, region, endpoint: server.url, forcePathStyle: true },
    credentialsFile: addSecret(section),
    ...{ prefixes: [`/=${PREFIX}`], partMegabytes: 1, ...given },
  };
  const open = (settings: object = {}, env: Record<string, string> = known) =>
    s3.create(parseSettings(s3.settings, { ...common, ...settings }), { name: 'tape', dataDir: '/nowhere', env });
  /** Keys of objects that cannot be restored for now. */
  const away = new Set<string>();
  let busySeconds: number | undefined;
  server.onRequest = async ({ operation, key }) => {
    const seconds = busySeconds;
    busySeconds = undefined;
    if (seconds !== undefined) return new S3Error(503, 'SlowDown', {}, { 'Retry-After': String(seconds) });
    const isRefused = operation === 'RestoreObject' && away.has(key);
    return isRefused ? new S3Error(503, 'GlacierExpeditedRetrievalNotAvailable') : undefined;
  };
  return {
    server,
    settings: common,
    env: known,
    open,
    library: open(),
    reopen: () => open(),
    put: async (path, bytes) => {
      away.delete(keyIn(path));
      server.store.put(keyIn(path), bytes);
    },
    arrive: async (paths) => server.store.arrive(paths.map(keyIn)),
    spoil: async (path, how) => {
      if (how === 'lost') server.store.remove(keyIn(path));
      else away.add(keyIn(path));
    },
    evict: async (path) => server.store.expire(keyIn(path)),
    forget: async () => {},
    lose: async (call) => {
      server.lost.set(call === 'stage' ? 'RestoreObject' : 'HeadObject', 1);
    },
    busy: async (seconds) => {
      busySeconds = seconds;
    },
    isStaged: async (path) => server.store.isReadable(keyIn(path)),
    countReads: async () => server.reads,
    close: () => server.close(),
  };
}

/** Defines a test with a bench of its own. */
export function benchTest(name: string, run: (bench: S3Bench) => Promise<void>): void {
  test(name, async () => {
    const bench = await createS3Bench();
    try {
      await run(bench);
    } finally {
      await bench.close();
    }
  });
}
