/** The processes of drives end when there is no work, and start again with work. */
import { mkdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, expect, test, vi } from 'vitest';
import { openRuntime } from '../../src/cli/connection/runtime.js';
import { readConfig } from '../../src/config/config.js';
import { setQuota } from '../../src/domain/quotas/quotas.js';
import { readClaimed } from '../../src/domain/recalls/drives.js';
import { createRequest } from '../../src/domain/requests/create.js';
import { getRequest } from '../../src/domain/requests/rows.js';
import { archiveTree } from '../../src/engine/archive/archive.js';
import { startEngineProcesses } from '../../src/main/commands/engine-processes.js';
import { createFirstLibrary } from '../../src/tape/kinds.js';
import { listEngineProcesses } from '../support/engine-processes.js';
import { cleanUp, makeDataDir } from '../support/process.js';
import { waitFor } from '../support/wait.js';

afterAll(cleanUp);

const listDrives = () => listEngineProcesses(process).flatMap(({ part, pid }) => (part === 'drive' ? [pid] : []));

test('the process of a drive ends when there is no work, and another one starts with work', async () => {
  const dataDir = makeDataDir();
  const wanted = { DATA_DIR: dataDir, LOG_LEVEL: 'error', DRIVES: '1' };
  for (const [name, value] of Object.entries(wanted)) vi.stubEnv(name, value); // engine processes read them
  const runtime = await openRuntime(readConfig(wanted));
  const { ctx } = runtime;
  await ctx.events.open();
  const source = path.join(dataDir, 'source');
  mkdirSync(source);
  for (const name of ['a', 'b']) writeFileSync(path.join(source, name), name);
  const { signal } = new AbortController();
  await archiveTree(ctx, createFirstLibrary(ctx.config), { dir: source, volumeSize: 1n }, { signal });
  await setQuota(ctx, { user: 'alice', size: 10n });
  const engine = await startEngineProcesses(runtime, { idleMs: 0 });
  const restore = async (file: string) => {
    const id = await createRequest(ctx, { quota: 'alice', files: [file] });
    await waitFor(`request ${id}`, async () => (await getRequest(ctx, id)).state === 'COMPLETED');
  };
  const isManned = async () => [...(await readClaimed(ctx, [1])).values()].every(Boolean);

  const [spare = 0] = await waitFor('a spare process', async () =>
    listDrives().length === 1 ? listDrives() : undefined,
  );
  await waitFor('the drive to count as usable', isManned);
  await restore('/a');
  await waitFor('the drive to end', async () => !listDrives().includes(spare));
  await waitFor('the next spare process', async () => listDrives().length === 1);
  expect(await isManned()).toBe(true);
  await restore('/b');

  await engine.stop();
  await waitFor('all processes to end', async () => listEngineProcesses(process).length === 0);
  await runtime.close();
});
