/**
 * The engine processes of a real server hang, stop or are killed. The server runs one process for periodic jobs, one for
 * each drive that has work, and a spare process for the next drive.
 */
import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdirSync, readFileSync, truncateSync, writeFileSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import path from 'node:path';
import { pathToFileURL } from 'node:url';
import { afterAll, describe, expect, test } from 'vitest';
import { packageRoot } from '../../src/core/package-root.js';
import { listEngineProcesses, waitForGone } from '../support/engine-processes.js';
import { askData } from '../support/graphql.js';
import { holdRecall } from '../support/held-recall.js';
import { cleanUp, kill, makeDataDir, type Running, runCli, startServer, stop } from '../support/process.js';
import { makeRequest } from '../support/rest.js';
import { DEMO, endLeases, hashTree, hashVolumes, waitForEnd } from '../support/server.js';
import { readSuspensions } from '../support/suspend.js';
import { waitFor } from '../support/wait.js';

const parts = (server: { pid: number }) =>
  listEngineProcesses(server)
    .map(({ part }) => part)
    .sort();

/**
 * Mounts a file system on which writes hang while it is frozen. Without root privileges or loop devices, returns
 * undefined.
 */
function mountFreezable(): { dir: string; freeze(): void; thaw(): void; remove(): void } | undefined {
  const home = makeDataDir();
  const [image, dir] = [path.join(home, 'image'), path.join(home, 'disk')];
  const run = (program: string, ...args: string[]) => execFileSync(program, args, { stdio: 'ignore' });
  let isFrozen = false;
  try {
    writeFileSync(image, '');
    truncateSync(image, 64 * 1024 * 1024);
    run('mkfs.ext4', '-q', image);
    mkdirSync(dir);
    run('mount', '-o', 'loop', image, dir);
    run('fsfreeze', '--freeze', dir);
    run('fsfreeze', '--unfreeze', dir);
  } catch {
    if (existsSync(dir)) execFileSync('umount', ['-q', dir], { stdio: 'ignore' });
    return undefined;
  }
  const thaw = () => {
    if (isFrozen) run('fsfreeze', '--unfreeze', dir);
    isFrozen = false;
  };
  return {
    dir,
    thaw,
    freeze: () => {
      run('fsfreeze', '--freeze', dir);
      isFrozen = true;
    },
    remove: () => {
      thaw();
      run('umount', '-l', dir);
    },
  };
}

const mounted: { remove(): void }[] = [];

afterAll(async () => {
  for (const each of mounted) each.remove();
  await cleanUp();
});

/** Stops a server without waiting for the end of its output: a child that hangs in the kernel keeps the output open. */
async function end(server: Running): Promise<number | null> {
  const ended = once(server.child, 'exit');
  server.child.kill('SIGTERM');
  const [code] = await ended;
  return code;
}

const signal = (processes: readonly { pid: number }[], name: NodeJS.Signals) => {
  for (const { pid } of processes) process.kill(pid, name);
};

/** Returns the logged changes of the number of processes that are loading modules. */
const loaded = (log: string) => readFileSync(log, 'utf8').trim().split('\n').map(Number);

// the tests run concurrently, because each test mostly waits for timeouts
describe.concurrent('engine processes', () => {
  test('a disk that hangs is suspended with the reason, and neither the stop nor other recalls wait for it', async ({
    skip,
  }) => {
    const freezable = mountFreezable();
    if (!freezable) return skip();
    mounted.push(freezable);
    const dataDir = makeDataDir();
    const env = { DATA_DIR: dataDir, TAPEGATE_DISK_TIMEOUT: '2', DRIVES: '2', LOG_LEVEL: 'fatal' };
    const server = await startServer('start', { env });
    await waitFor('the jobs and a spare process', async () => parts(server).join() === 'drive,jobs');
    const restore = path.join(dataDir, 'restore');
    // the command has the default timeout, because the first sync of a busy disk may take seconds
    const add = (dir: string, size: string) =>
      runCli(['disk', 'add', dir, '--size', size], { env: { DATA_DIR: dataDir } });
    expect(await add(restore, '20M')).toMatchObject({ code: 0, stderr: '' });
    expect(await add(freezable.dir, '20M')).toMatchObject({ code: 0, stderr: '' });
    // if a check precedes the marker of the freezable disk, the disk is suspended briefly
    for (let month = 1; Object.keys(hashTree(freezable.dir)).length === 0; month++) {
      await waitFor('the disks to be in service', async () => (await readSuspensions(server)).length === 0);
      const one = `/demo/ocean/2023/sst_20230${month}`;
      await waitForEnd(server, await makeRequest(server, { quota: 'alice', patterns: one }));
    }
    freezable.freeze();
    const id = await makeRequest(server, { quota: 'alice', patterns: DEMO });
    const suspended = await waitFor('the disk to be suspended', async () =>
      (await readSuspensions(server)).find(({ kind, reason }) => kind === 'DISK' && /answered/.test(reason ?? '')),
    );
    expect(suspended).toMatchObject({
      name: freezable.dir,
      mode: 'IMMEDIATE',
      reason: `the restore disk ${freezable.dir} has not answered for 2 s`,
    });
    await waitForEnd(server, id);
    expect(hashTree(restore)).toMatchObject(await hashVolumes(server, dataDir, DEMO));
    await waitFor('the ended processes to be replaced', async () => parts(server).length >= 2);
    expect(await end(server)).toBe(0);

    const next = await startServer('start', { env });
    const other = await makeRequest(next, { quota: 'alice', patterns: '/demo/ocean/2025/sst_202501' });
    await waitForEnd(next, other);
    freezable.thaw();
    await waitFor('the disk to be in service again', async () => (await readSuspensions(next)).length === 0);
    expect(await end(next)).toBe(0);
  });

  test('drive processes that are killed or silent are started again, and others take over their recalls', async () => {
    const dataDir = makeDataDir();
    const server = await startServer('start', { env: { DATA_DIR: dataDir, LOG_LEVEL: 'error' } });
    const drives = () => listEngineProcesses(server).filter(({ part }) => part === 'drive');
    const restore = async (patterns: string) =>
      waitForEnd(server, await makeRequest(server, { quota: 'alice', patterns }));

    const recalls = [await holdRecall(server, dataDir, 'HELD1'), await holdRecall(server, dataDir, 'HELD2')];
    const all = await waitFor('two drives', async () => (drives().length === 2 ? drives() : undefined));
    const [killed, silent] = [all.slice(0, 1), all.slice(1)];
    signal(killed, 'SIGKILL');
    signal(silent, 'SIGSTOP');
    await waitForGone(killed);
    for (const recall of recalls) await recall.open();
    await endLeases(dataDir);
    await restore('/demo/ocean/2023');
    expect(server.stderr()).toContain('restarting an engine process: the process exited with SIGKILL');

    await waitForGone(silent);
    await waitFor('two drives', async () => drives().length === 2);
    expect(server.stderr()).toContain('restarting an engine process: the process sent no message for 20 s');
    await waitFor('the drives of the ended processes to be removed', async () => {
      const { drives: known } = await askData<{ drives: { totalCount: number } }>(server, '{ drives { totalCount } }');
      return known.totalCount === 2;
    });
    for (const recall of recalls) await waitForEnd(server, recall.id);
    expect(hashTree(path.join(dataDir, 'restore'))).toMatchObject(await hashVolumes(server, dataDir, '/held/'));
    expect((await stop(server)).code).toBe(0);
  });

  test('engine processes end with their server, whether it is killed or stopped, even if they are stopped', async () => {
    const env = { DATA_DIR: makeDataDir(), DEMO: 'off' };
    const listBoth = async (server: Running) => {
      await waitFor('the jobs and a spare process', async () => parts(server).join() === 'drive,jobs');
      return listEngineProcesses(server);
    };
    const killed = await startServer('start', { env });
    const first = await listBoth(killed);
    await kill(killed);
    await waitForGone(first);

    const server = await startServer('start', { env });
    const second = await listBoth(server);
    const isHealthy = second.findIndex(({ part }) => part === 'drive');
    const stopped = second.filter((_, n) => n !== isHealthy);
    signal(stopped, 'SIGSTOP');
    signal(second, 'SIGTERM'); // a service manager signals each process of a group
    const { code, stderr } = await stop(server);
    expect(code).toBe(0);
    const lines = stderr.trim().split('\n');
    expect(lines).toEqual(stopped.map(() => expect.stringContaining('engine process did not stop in time: killed')));
    await waitForGone(second);
  });

  test('processes that load for long are not ended, and only a few load at once', async () => {
    const dataDir = makeDataDir();
    const log = path.join(makeDataDir(), 'loading');
    const preload = pathToFileURL(path.join(packageRoot, 'test/support/slow-engine.mjs')).href;
    const slow = { NODE_OPTIONS: `--import=${preload}`, SLOW_ENGINE_LOG: log };
    const server = await startServer('start', {
      env: { DATA_DIR: dataDir, DRIVES: '4', LOG_LEVEL: 'error', ...slow },
    });
    // the process that makes the demo loads its code, too; three volumes need three drives; the fifth process is a spare
    await waitForEnd(server, await makeRequest(server, { quota: 'alice', patterns: '/demo/' }));
    await waitFor('the jobs', async () => loaded(log).length === 12);
    const most = Math.max(...loaded(log).map((_, n, all) => all.slice(0, n + 1).reduce((sum, change) => sum + change)));
    expect(most).toBeLessThanOrEqual(Math.max(2, availableParallelism()));
    expect(await end(server)).toBe(0);
    expect(server.stderr()).toBe('');
  });
});
