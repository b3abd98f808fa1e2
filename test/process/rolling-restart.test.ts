import { afterAll, beforeAll, expect, test } from 'vitest';
import { createMemoryBackend } from '../../src/tape/memory.js';
import { startApp, type TestApp } from '../support/app.js';
import { cleanUp, serveHere } from '../support/process.js';
import { hasCaughtUp, hasLostNothing, restartUnderWatchers } from '../support/rolling-restart.js';

let app: TestApp;
const backend = createMemoryBackend();
beforeAll(async () => {
  app = await startApp({ backend, config: { drives: 6 } });
});
afterAll(async () => {
  await cleanUp();
  await app.close();
});

test('a gateway that is restarted ends no client; those who resume lose no event, the others get the present state', async () => {
  const env = { DATABASE_URL: app.databaseUrl, DATA_DIR: app.dataDir };
  const restart = await restartUnderWatchers(
    { ctx: app.ctx, backend, serve: (port) => serveHere({ ...env, PORT: String(port) }) },
    { ofEachKind: 3, awaySeconds: 0, patienceMs: 60_000 },
  );
  const { watchers, events, files } = restart;
  expect(restart.endedEarly).toBe(0);
  expect(events.at(-1)).toMatchObject({ state: 'COMPLETED', filesOnDisk: files });
  expect(watchers).toHaveLength(12);
  for (const watcher of watchers) {
    const isRight = watcher.resumes ? hasLostNothing(watcher, events) : hasCaughtUp(watcher, files);
    expect({ ...watcher, isRight }).toMatchObject({ end: 'complete', isRight: true });
    expect(watcher.connections.length).toBeGreaterThan(1);
  }
}, 180_000);
