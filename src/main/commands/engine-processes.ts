/**
 * Starts the engine for the commands `start` and `work`: one process for jobs, and one for each drive that has work
 * (src/main/engine-process.ts). With separate processes, a hung call stops only one drive, or only the jobs, until the
 * parent process restarts the child process.
 */
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import type { Runtime } from '../../cli/connection/runtime.js';
import { isCounting } from '../../core/signals.js';
import { FIRST_LIBRARY } from '../../domain/libraries/libraries.js';
import { FollowedLibraries, readingKey } from '../../engine/followed-libraries.js';
import { type Job, runJobs, WorkSignal } from '../../engine/jobs/jobs.js';
import { DriveProcessGroups } from './drive-processes.js';
import { SupervisedProcess } from './supervised-process.js';

export interface EngineProcesses {
  stop(): Promise<void>;
}

/** Notifications after which drives might have work. */
const WORK_TOPICS = ['recall', 'suspension', 'library', 'room'];

/**
 * Starts the processes. Returns when the restore disks are registered, or after some seconds at the latest.
 * @param options.idleMs milliseconds without work after which the processes of drives end
 */
export async function startEngineProcesses(
  { ctx, connection }: Runtime,
  { idleMs }: { idleMs?: number } = {},
): Promise<EngineProcesses> {
  const order = { connection, engineId: randomUUID(), isMeasured: isCounting() };
  const jobs = new SupervisedProcess(ctx, order, 'jobs');
  jobs.fork();
  // start the jobs process first, because it registers the restore disks; a drive without disks would postpone its
  // first files
  await jobs.begin(FIRST_LIBRARY);
  const make = () => new SupervisedProcess(ctx, order, 'drive');
  const drives = new DriveProcessGroups(ctx, { engineId: order.engineId, make, idleMs });
  drives.add({ id: FIRST_LIBRARY, name: 'directory', drives: ctx.config.drives });
  const stopping = new AbortController();
  const others = new FollowedLibraries(ctx, {
    keyOf: readingKey,
    stop: stopping.signal,
    work: async (library, stop) => {
      const group = drives.add(library);
      await once(stop, 'abort');
      await drives.remove(group);
    },
  });
  const [library, work] = [new WorkSignal(), new WorkSignal()];
  const unlisten = [
    ctx.events.onNotify('library', () => library.notify()),
    ...WORK_TOPICS.map((topic) => ctx.events.onNotify(topic, () => work.notify())),
  ];
  const follow: Job = {
    name: 'libraries',
    signal: library,
    everyMs: () => others.followMs,
    run: () => others.follow(),
  };
  void runJobs(ctx, stopping.signal, [follow, drives.job(work)]);
  return {
    stop: async () => {
      stopping.abort();
      for (const end of unlisten) end();
      await Promise.all([drives.stop(), others.ended, jobs.stop()]);
    },
  };
}
