/**
 * The engine: drives that recall files, and periodic jobs. Several engines can share a database. An engine can be
 * killed at any point, because other engines recover its work.
 */
import { randomUUID } from 'node:crypto';
import { setMaxListeners } from 'node:events';
import { hostname } from 'node:os';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Transporter } from 'nodemailer';
import { pruneAudit } from '../domain/audit/lists.js';
import { updatePathBlocks } from '../domain/catalogue/block-upkeep.js';
import type { Context } from '../domain/context.js';
import { pruneLinks } from '../domain/disks/downloads.js';
import { returnOrphans } from '../domain/disks/removals.js';
import { wakeForRoom } from '../domain/disks/reservations.js';
import { endFarTimes } from '../domain/far-times.js';
import { suspendDisk } from '../domain/health/failing-disks.js';
import { pruneIdempotencyKeys } from '../domain/idempotency-keys.js';
import { removeSurplusDrives } from '../domain/libraries/changes.js';
import { FIRST_LIBRARY } from '../domain/libraries/libraries.js';
import { markUnlinked } from '../domain/links/links.js';
import { createMailTransport } from '../domain/notifications/mail/mail.js';
import { queueExpiring } from '../domain/notifications/mail/notifications.js';
import { queueNearEnds, queueWebhooks } from '../domain/notifications/webhooks/news.js';
import { pruneMessages } from '../domain/notifications/webhooks/outbox.js';
import { type DriveRange, ensureDrives } from '../domain/recalls/drives.js';
import { failUnplaced, failWithdrawnRecalls } from '../domain/recalls/ends.js';
import { findAbandoned, leaveAllUnreadable } from '../domain/recalls/queue.js';
import { expireRequests } from '../domain/requests/ends.js';
import { joinUnresolved } from '../domain/requests/joins.js';
import { writeHistory } from '../domain/site/curves.js';
import { pruneEmails, pruneEvents } from '../domain/site/pruning.js';
import { pruneStageRequests } from '../domain/stage-requests/stage-requests.js';
import { CallWatch, limitsOf } from '../restore-area/call-watch.js';
import { checkChangedCopies } from '../restore-area/copies/changed.js';
import { CopyCheck } from '../restore-area/copies/missing.js';
import { removeStaleFiles, removeUnheld, WaitingRequests } from '../restore-area/copies/removal.js';
import { FailingDisks } from '../restore-area/failures.js';
import { beginLinks, LinkKeeper } from '../restore-area/links/keeper.js';
import { CHECK_MS, ownershipOf } from '../restore-area/ownership.js';
import { Renumbering } from '../restore-area/renumbered.js';
import { prepareDisks } from '../restore-area/setup.js';
import { createMeasurement, DiskGauge, type readFileSystem } from '../restore-area/space.js';
import type { DriveLibrary } from '../tape/drive-library.js';
import type { Site } from '../tape/kind.js';
import { type DriveWork, mountVolumes, takeOver } from './drive/drive.js';
import { RunningRecalls } from './drive/options.js';
import { DriveGroups, type SharedOptions } from './drive-groups.js';
import { FollowedLibraries, stagingKey } from './followed-libraries.js';
import { DueJobs } from './jobs/due-jobs.js';
import { type Job, runJobs, WorkSignal } from './jobs/jobs.js';
import { sendMail } from './notifications/notify.js';
import { WebhookSender } from './notifications/sender.js';
import { openStagingLibrary } from './staging/open-library.js';
import { runStager } from './staging/stager.js';

export interface Engine {
  /**
   * Stops the engine. Waits a limited time for running work, and then aborts and requeues unfinished work. Does not
   * wait for hung calls.
   * @param drainMs milliseconds to wait before running work is aborted
   */
  stop(drainMs?: number): Promise<void>;
}

/**
 * The part of an engine that a process runs: one drive, or the periodic jobs. In tests and benchmarks, one process can
 * run everything.
 */
export type EnginePart = 'drive' | 'jobs' | 'all';

export interface EngineOptions {
  part?: EnginePart;
  /** Library whose drives the process runs. Default: the library in the data directory. */
  library?: DriveRange;
  /** Environment variables to which library settings can refer by name. */
  env?: Site['env'];
  /** Called after a disk or tape call has hung and the failure has been recorded. */
  onHang?: () => void;
  /** The engine's id, which all of its processes share. Default: a new id. */
  engineId?: string;
  // only tests use the following options
  /** Seconds after which other engines can claim a drive of an unresponsive engine. */
  leaseSeconds?: number;
  drainMs?: number;
  /** Milliseconds between polls by an idle drive, and between runs of the job `abandon`. */
  idleMs?: number;
  /**
   * Milliseconds before this engine retries an unusable drive or library, so that another host can claim the drive or
   * library first.
   */
  unusablePauseMs?: number;
  /** Milliseconds between an idle drive's searches for tape copies to verify. */
  verifyMs?: number;
  repairMs?: number;
  host?: string;
  readFileSystem?: typeof readFileSystem;
  /** Milliseconds between measurements of free disk space. */
  measureMs?: number;
}

const LEASE_SECONDS = 15;
const DRAIN_MS = 5000;
/**
 * Milliseconds for which a stopping engine waits for aborted work to end (`ABORT_MS`), and for drives to be released
 * (`LEAVE_MS`).
 */
const ABORT_MS = 3000;
const LEAVE_MS = 1000;
const IDLE_MS = 1000;
/**
 * Milliseconds before this engine retries an unusable drive or library. This pause is longer than the engines' poll
 * interval (`IDLE_MS`), so that another host can claim the drive or library first.
 */
const UNUSABLE_PAUSE_MS = 3000;
const VERIFY_MS = 5000;
const REPAIR_MS = 10_000;
const UNMARKED_MS = 60_000;
const COPIES_MS = 60_000;
const BLOCKS_MS = 10_000;
const EXPIRING_MS = 60_000;
const HISTORY_MS = 3_600_000;
const CURVES_MS = 15_000;
const MEASURE_MS = 10_000;
const SURPLUS_MS = 30_000;

/**
 * Starts drives and jobs. While another Tapegate owns the restore disks (restore-area/ownership.ts), the engine waits
 * and changes nothing. A process with part `all` also runs the drives of all other libraries.
 * @param given the library that the engine's drives use, or the function that each drive runs
 * @returns a promise that settles after the site's restore disks and drives are registered
 */
export async function startEngine(
  ctx: Context,
  given: DriveLibrary | DriveWork,
  options: EngineOptions = {},
): Promise<Engine> {
  const [ownership, stopped] = [ownershipOf(ctx), new AbortController()];
  const stamps = options.part !== 'drive';
  let engine: Engine | undefined;
  const follow = async () => {
    const reason = await ownership.check({ stamps });
    if (reason === undefined) {
      engine ??= await runEngine(ctx, given, options);
      return;
    }
    const fenced = engine;
    engine = undefined;
    await fenced?.stop(0);
    if (fenced || stamps) ownership.logOnce(reason);
  };
  await follow();
  const everyMs = CHECK_MS;
  const following = runJobs(ctx, stopped.signal, [{ name: 'ownership', everyMs, run: follow }]);
  return {
    stop: async () => {
      stopped.abort();
      await following;
      await engine?.stop();
      if (stamps) await ownership.release();
    },
  };
}

async function runEngine(ctx: Context, given: DriveLibrary | DriveWork, options: EngineOptions): Promise<Engine> {
  const { drainMs = DRAIN_MS, part = 'all', onHang = () => {} } = options;
  const { drives } = ctx.config;
  if (part !== 'drive') await prepareDisks(ctx);
  if (part !== 'drive') await beginLinks(ctx);
  await ensureDrives(ctx, drives);
  const [stop, abort, leave] = [new AbortController(), new AbortController(), new AbortController()];
  setMaxListeners(0, stop.signal, abort.signal, leave.signal);
  const workSignals = createWorkSignals();
  const { readFileSystem: read, host } = options;
  const gauge = new DiskGauge({ read, host, group: ctx.config.restoreGroup });
  const disks = new FailingDisks(ctx, gauge, { calls: watchJobCalls(ctx, onHang), host: options.host });
  gauge.onProblem = (mountpoint, problem) => disks.suspendSoon(mountpoint, problem);
  if (part !== 'drive') await disks.probeAll();
  const transport = ctx.config.smtpUrl ? await createMailTransport(ctx.config.smtpUrl) : undefined;
  const signals = { stop: stop.signal, abort: abort.signal, leave: leave.signal };
  const shared = readOptions(options, {
    ...signals,
    work: workSignals.recall,
    gauge,
    disks,
    links: new LinkKeeper(ctx),
  });
  const driveGroups = new DriveGroups(ctx, shared, options);
  const unlisten = listen(ctx, workSignals, { crews: driveGroups, disks });
  const { library = { id: FIRST_LIBRARY, name: 'directory', drives } } = options;
  const work = typeof given === 'function' ? given : mountVolumes(given);
  const stagers = followStagers(ctx, { shared, workSignals, env: options.env ?? {} });
  const webhooks = new WebhookSender(ctx, { stop: stop.signal, abort: abort.signal });
  if (part !== 'jobs') await driveGroups.start(library, work, part === 'drive' ? 1 : library.drives);
  const repairMs = options.repairMs ?? REPAIR_MS;
  const due = new DueJobs(ctx, Object.values(workSignals));
  const all = [
    ...listRestoreJobs(ctx, { shared, driveGroups, stagers, workSignals, due, repairMs }),
    ...listNotificationJobs(ctx, { shared, webhooks, workSignals, due, transport }),
    createMeasureJob(ctx, disks, options),
    due.job,
  ];
  const jobs = runJobs(ctx, stop.signal, jobsOf(part, all));
  return {
    stop: async (waitMs = drainMs) => {
      const drained = Promise.all([driveGroups.ended, jobs.then(() => Promise.all([stagers.ended, webhooks.ended]))]);
      const within = (ms: number) => Promise.race([drained, sleep(ms, undefined, { ref: false })]);
      stop.abort();
      if (waitMs > 0) await within(waitMs);
      abort.abort();
      await within(ABORT_MS);
      leave.abort();
      await within(LEAVE_MS);
      unlisten();
      transport?.close();
    },
  };
}

function followStagers(
  ctx: Context,
  { shared, workSignals, env }: { shared: SharedOptions; workSignals: WorkSignals; env: NodeJS.ProcessEnv },
): FollowedLibraries {
  const options = {
    ...{ ...shared, engineId: randomUUID(), signals: [workSignals.recall, workSignals.event] },
    measure: (rows: Parameters<DiskGauge['measure']>[0]) => shared.gauge.measure(rows),
  };
  return new FollowedLibraries(ctx, {
    contract: 'STAGING',
    keyOf: stagingKey,
    stop: shared.stop,
    work: async (found, end) => await runStager(ctx, openStagingLibrary(ctx, found, env), { ...options, stop: end }),
  });
}

function readOptions(
  {
    leaseSeconds = LEASE_SECONDS,
    idleMs = IDLE_MS,
    unusablePauseMs: leftMs = UNUSABLE_PAUSE_MS,
    verifyMs = VERIFY_MS,
    onHang = () => {},
  }: EngineOptions,
  shared: Pick<SharedOptions, 'stop' | 'abort' | 'leave' | 'work' | 'gauge' | 'disks' | 'links'>,
): SharedOptions {
  return {
    ...shared,
    leaseSeconds,
    idleMs,
    unusablePauseMs: leftMs,
    verifyMs,
    onHang,
    held: new Set(),
    running: new RunningRecalls(),
  };
}

function createWorkSignals(): WorkSignals {
  return {
    recall: new WorkSignal(),
    event: new WorkSignal(),
    notification: new WorkSignal(),
    room: new WorkSignal(),
    library: new WorkSignal(),
    webhook: new WorkSignal(),
    suspension: new WorkSignal(),
  };
}

/**
 * Detects file-system calls that hang in periodic jobs. Suspends the disk of a hung call, so that no other process uses
 * the disk.
 */
function watchJobCalls(ctx: Context, onHang: () => void): CallWatch {
  return new CallWatch(limitsOf(ctx), ({ target, message }) => {
    if (target.kind !== 'disk') return;
    suspendDisk(ctx, target.mountpoint, message).then(onHang, onHang);
  });
}

type WorkSignals = Record<
  'recall' | 'event' | 'notification' | 'room' | 'library' | 'webhook' | 'suspension',
  WorkSignal
>;

function listen(
  ctx: Context,
  workSignals: WorkSignals,
  { crews: driveGroups, disks }: { crews: DriveGroups; disks: FailingDisks },
): () => void {
  const ends = Object.entries(workSignals).map(([table, signal]) => ctx.events.onNotify(table, () => signal.notify()));
  // signal the jobs after a suspension or resumption, because jobs might have to start or stop work
  for (const signal of [workSignals.recall, workSignals.event, workSignals.room])
    ends.push(ctx.events.onNotify('suspension', () => signal.notify()));
  ends.push(
    ctx.events.onNotify('suspension', () => {
      driveGroups.endPauses();
      disks.clearCache();
    }),
  );
  return () => {
    for (const end of ends) end();
  };
}

function jobsOf(part: EnginePart, jobs: readonly Job[]): Job[] {
  if (part === 'all') return [...jobs];
  return jobs.filter(({ name }) => name !== 'libraries' && (part === 'drive') === (name === 'abandon'));
}

function listRestoreJobs(
  ctx: Context,
  given: {
    shared: SharedOptions;
    driveGroups: DriveGroups;
    stagers: FollowedLibraries;
    workSignals: WorkSignals;
    due: DueJobs;
    repairMs: number;
  },
): Job[] {
  const { shared, driveGroups, stagers, workSignals, due, repairMs } = given;
  const { event } = workSignals;
  const { running, disks, gauge, stop, leaseSeconds } = shared;
  const lease = { ...shared, engineId: randomUUID() };
  const stopAbandoned = async () => {
    if (!running.isEmpty) running.stop(await findAbandoned(ctx, driveGroups.engineIds));
  };
  const following = (libraries: FollowedLibraries) => ({
    signal: workSignals.library,
    everyMs: () => libraries.followMs,
    run: () => libraries.follow(),
  });
  const waiting = new WaitingRequests();
  const [copyCheck, renumbering] = [new CopyCheck(), new Renumbering()];
  const remove = () => removeUnheld(ctx, stop, disks, waiting);
  const wakeRecalls = () => wakeForRoom(ctx, (rows) => gauge.measure(rows));
  return [
    { name: 'abandon', signal: event, everyMs: shared.idleMs, pauseFactor: 20, run: stopAbandoned },
    { name: 'expire', isByTime: true, ...due.of('expire', event), run: () => expireRequests(ctx) },
    { name: 'remove', isByTime: true, ...due.of('remove', event), run: remove },
    { name: 'take over', ...due.of('take over'), everyMs: leaseSeconds * 1000, run: () => takeOver(ctx, lease) },
    { name: 'libraries', ...following(driveGroups.others) },
    { name: 'staging libraries', ...following(stagers) },
    { name: 'surplus drives', signal: workSignals.library, everyMs: SURPLUS_MS, run: () => removeSurplusDrives(ctx) },
    { name: 'path blocks', ...due.of('path blocks'), leastMs: BLOCKS_MS, run: () => updatePathBlocks(ctx, stop) },
    { name: 'links', ...due.of('links', event), run: () => shared.links.settleAll(stop) },
    { name: 'unmarked links', everyMs: UNMARKED_MS, run: () => markUnlinked(ctx) },
    {
      name: 'far times',
      isByTime: true,
      signal: workSignals.suspension,
      everyMs: HISTORY_MS,
      run: () => endFarTimes(ctx),
    },
    { name: 'orphans', ...due.repair(repairMs), run: () => returnOrphans(ctx) },
    { name: 'joins', ...due.repair(repairMs), run: () => joinUnresolved(ctx) },
    {
      name: 'stale partial files',
      isByTime: true,
      ...due.repair(repairMs),
      run: () => removeStaleFiles(ctx, stop, disks),
    },
    { name: 'copies', everyMs: COPIES_MS, run: () => copyCheck.run(ctx) },
    { name: 'renumbered copies', everyMs: COPIES_MS, run: () => renumbering.run(ctx, stop, disks) },
    {
      name: 'changed copies',
      ...due.repair(repairMs, workSignals.recall),
      run: () => checkChangedCopies(ctx, stop, disks),
    },
    { name: 'unplaced', ...due.repair(repairMs, workSignals.recall), run: () => failUnplaced(ctx) },
    { name: 'withdrawn', ...due.repair(repairMs), run: () => failWithdrawnRecalls(ctx) },
    { name: 'second copies', ...due.repair(repairMs), run: () => leaveAllUnreadable(ctx, stop) },
    { name: 'room', ...due.repair(repairMs, workSignals.room), run: wakeRecalls },
    { name: 'disks', ...due.of('disks'), run: () => disks.retry() },
    { name: 'new disks', ...due.of('new disks', workSignals.room), run: () => disks.markNew() },
  ];
}

function listNotificationJobs(
  ctx: Context,
  given: {
    shared: SharedOptions;
    webhooks: WebhookSender;
    workSignals: WorkSignals;
    due: DueJobs;
    transport: Transporter | undefined;
  },
): Job[] {
  const { shared, webhooks, workSignals, due, transport } = given;
  const { stop, abort } = shared;
  return [
    {
      name: 'history',
      isByTime: true,
      everyMs: HISTORY_MS,
      run: async () => {
        await pruneIdempotencyKeys(ctx, stop);
        await pruneLinks(ctx);
        await pruneEvents(ctx, stop);
      },
    },
    { name: 'audit', isByTime: true, everyMs: HISTORY_MS, run: () => pruneAudit(ctx, stop) },
    { name: 'curves', isByTime: true, everyMs: CURVES_MS, run: () => writeHistory(ctx, stop) },
    { name: 'emails', isByTime: true, everyMs: HISTORY_MS, run: () => pruneEmails(ctx, stop) },
    { name: 'stage requests', isByTime: true, everyMs: HISTORY_MS, run: () => pruneStageRequests(ctx, stop) },
    { name: 'expiring', isByTime: true, everyMs: EXPIRING_MS, run: () => queueExpiring(ctx, stop) },
    {
      name: 'webhook news',
      ...due.of('webhook news', workSignals.event),
      pauseFactor: 5,
      run: () => queueWebhooks(ctx, stop),
    },
    { name: 'webhook near ends', isByTime: true, everyMs: EXPIRING_MS, run: () => queueNearEnds(ctx, stop) },
    { name: 'webhook messages', isByTime: true, everyMs: HISTORY_MS, run: () => pruneMessages(ctx, stop) },
    { name: 'webhooks', ...due.of('webhooks', workSignals.webhook), run: () => webhooks.run() },
    {
      name: 'mail',
      ...due.of('mail', workSignals.notification),
      run: () => sendMail(ctx, transport, { stop, abort }),
    },
  ];
}

function createMeasureJob(ctx: Context, { calls }: FailingDisks, options: EngineOptions): Job {
  const { host = hostname(), readFileSystem } = options;
  const run = createMeasurement(ctx, { calls, host, read: readFileSystem });
  return { name: 'free space', everyMs: options.measureMs ?? MEASURE_MS, run };
}
