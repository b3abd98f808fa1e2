/**
 * Metrics of the whole site. Each process reports the same values, so names begin with `tapegate_site_`: use the
 * maximum over processes. The database is read once for all scrapes, then rests for ten seconds, or 20 times as long as
 * the read took.
 */
import { Gauge, type Registry } from 'prom-client';
import { logFailure } from '../core/errors.js';
import type { Context } from '../domain/context.js';
import { readSiteFigures, type SiteFigures } from '../domain/site/figures.js';

const REST_MS = 10_000;
const REST_TIMES = 20;
/** A scrape waits this long, then reports older figures up to a limit. */
const WAIT_MS = 3000;
const STALE_MS = 120_000;

type Tell = (name: string, labels: Readonly<Record<string, string>>, value: number) => void;

const gauges: Record<string, [help: string, ...labels: string[]]> = {
  tapegate_site_look_success: ['1 if the last read of the site metrics succeeded'],
  tapegate_site_look_seconds: ['Time of the last read of the site metrics'],
  tapegate_site_queue_files: ['Files in the queue, by state of the recall', 'state'],
  tapegate_site_queue_bytes: ['Bytes in the queue, by state of the recall', 'state'],
  tapegate_site_queue_oldest_seconds: ['Age of the oldest file in the queue'],
  tapegate_site_open_requests: ['Requests that have not ended'],
  tapegate_site_engines: ['Engines that have or request a drive'],
  tapegate_site_drives: ['Drives by state: working, idle, free (no engine uses it), suspended', 'library', 'state'],
  tapegate_site_drive_suspended: ['1 if the drive is suspended', 'library', 'drive'],
  tapegate_site_library_suspended: ['1 if the library is suspended', 'library'],
  tapegate_site_library_problem: ['1 if the last call to the library failed', 'library'],
  tapegate_site_disk_size_bytes: ['Allocation of the restore disk', 'disk'],
  tapegate_site_disk_used_bytes: ['Bytes of copies on the restore disk', 'disk'],
  tapegate_site_disk_reserved_bytes: ['Bytes reserved for running recalls', 'disk'],
  tapegate_site_disk_free_bytes: ['Free bytes of the file system, the minimum over engines; absent if unknown', 'disk'],
  tapegate_site_disk_room_bytes: [
    'Room for new copies: the smaller of the allocation and the free bytes, minus reservations',
    'disk',
  ],
  tapegate_site_disk_problem: ['1 if the restore disk fails or has a problem', 'disk'],
  tapegate_site_disk_suspended: ['1 if the restore disk is suspended', 'disk'],
  tapegate_site_disk_full: ['1 if the restore disk rejected a file because it is full', 'disk'],
  tapegate_site_suspended: ['Suspensions, by kind and mode', 'kind', 'mode'],
  tapegate_site_mail_waiting: ['Emails waiting to be sent'],
  tapegate_site_mail_failing: ['Waiting emails whose last attempt failed'],
  tapegate_site_mail_oldest_seconds: ['Age of the oldest waiting email'],
  tapegate_site_event_batches_unseen: ['Batches of events that no process has read yet'],
};

interface Seen {
  figures: SiteFigures;
  at: number;
  tookMs: number;
}

class SiteLook {
  private readonly ctx: Context;
  private last: Seen | undefined;
  private restUntil = 0;
  private looking: Promise<void> | undefined;
  isGood = false;

  constructor(ctx: Context) {
    this.ctx = ctx;
  }

  /** @returns undefined if nothing is known, or only older figures */
  async get(): Promise<Seen | undefined> {
    if (performance.now() >= this.restUntil) this.looking ??= this.look();
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<void>((resolve) => {
      timer = setTimeout(resolve, WAIT_MS).unref();
    });
    await Promise.race([this.looking, late]);
    clearTimeout(timer);
    const isKnown = this.last !== undefined && performance.now() - this.last.at < STALE_MS;
    return isKnown ? this.last : undefined;
  }

  private async look(): Promise<void> {
    const startedAt = performance.now();
    try {
      const figures = await readSiteFigures(this.ctx);
      this.last = { figures, at: performance.now(), tookMs: performance.now() - startedAt };
      this.isGood = true;
    } catch (error) {
      this.isGood = false;
      logFailure(this.ctx.log, error, 'metrics of the site');
    } finally {
      const tookMs = performance.now() - startedAt;
      this.restUntil = performance.now() + Math.max(REST_MS, tookMs * REST_TIMES);
      this.looking = undefined;
    }
  }
}

/** @returns a function that updates the gauges before the registry is read */
export function addSiteGauges(ctx: Context, registry: Registry): () => Promise<void> {
  const made = new Map(
    Object.entries(gauges).map(([name, [help, ...labelNames]]) => [
      name,
      new Gauge({
        name,
        help: `${help}. The same from every process`,
        labelNames,
        registers: [registry],
      }),
    ]),
  );
  const look = new SiteLook(ctx);
  const tell: Tell = (name, labels, value) => made.get(name)?.set(labels, value);
  return async () => {
    const seen = await look.get();
    for (const [name, gauge] of made) {
      gauge.reset();
      if (gauges[name]?.length === 1) gauge.remove(); // it would be 0, as if that had been seen
    }
    tell('tapegate_site_look_success', {}, look.isGood && seen ? 1 : 0);
    if (!seen) return;
    tell('tapegate_site_look_seconds', {}, seen.tookMs / 1000);
    tellFigures(seen.figures, tell);
  };
}

function tellFigures({ queue, drives, libraries, disks, suspensions, mail, ...site }: SiteFigures, tell: Tell): void {
  for (const state of ['WAITING', 'RUNNING']) {
    const { files = 0, bytes = 0 } = queue.find((part) => part.state === state) ?? {};
    tell('tapegate_site_queue_files', { state: state.toLowerCase() }, files);
    tell('tapegate_site_queue_bytes', { state: state.toLowerCase() }, bytes);
  }
  const waiting = queue.find(({ state }) => state === 'WAITING');
  tell('tapegate_site_queue_oldest_seconds', {}, waiting?.seconds ?? 0);
  tell('tapegate_site_open_requests', {}, Number(site.openRequests));
  tell('tapegate_site_engines', {}, site.engines);
  for (const { library, isSuspended, hasProblem } of libraries) {
    tell('tapegate_site_library_suspended', { library }, Number(isSuspended));
    tell('tapegate_site_library_problem', { library }, Number(hasProblem));
    for (const state of ['suspended', 'working', 'idle', 'free']) {
      const number = drives.filter((drive) => drive.library === library && drive.state === state).length;
      tell('tapegate_site_drives', { library, state }, number);
    }
  }
  for (const { library, drive, state } of drives) {
    tell('tapegate_site_drive_suspended', { library, drive }, Number(state === 'suspended'));
  }
  for (const disk of disks) tellDisk(disk, tell);
  for (const { kind, mode, number } of suspensions) {
    tell('tapegate_site_suspended', { kind: kind.toLowerCase(), mode: mode.toLowerCase() }, number);
  }
  tell('tapegate_site_mail_waiting', {}, mail.waiting);
  tell('tapegate_site_mail_failing', {}, mail.failing);
  tell('tapegate_site_mail_oldest_seconds', {}, mail.oldestSeconds);
  tell('tapegate_site_event_batches_unseen', {}, site.unnumberedBatches);
}

function tellDisk(seen: SiteFigures['disks'][number], tell: Tell): void {
  const { disk, size, used, reserved, free } = seen;
  tell('tapegate_site_disk_size_bytes', { disk }, size);
  tell('tapegate_site_disk_used_bytes', { disk }, used);
  tell('tapegate_site_disk_reserved_bytes', { disk }, reserved);
  const room = Math.max(0, size - used - reserved);
  if (free !== null) {
    tell('tapegate_site_disk_free_bytes', { disk }, free);
    // reserved bytes are mostly not written yet
    tell('tapegate_site_disk_room_bytes', { disk }, Math.min(room, Math.max(0, free - reserved)));
  }
  tell('tapegate_site_disk_problem', { disk }, Number(seen.hasProblem));
  tell('tapegate_site_disk_suspended', { disk }, Number(seen.isSuspended));
  tell('tapegate_site_disk_full', { disk }, Number(seen.isFull));
}
