/**
 * Metrics of the whole site. Their names begin with `tapegate_site_`. Every process reports these metrics, so queries
 * must use the maximum over all processes.
 *
 * All scrapes share one read of the database. To limit the load on the database, the next read starts at least ten
 * seconds later, and at least 20 times the duration of the last read later.
 */
import { Gauge, type Registry } from 'prom-client';
import { logFailure } from '../core/errors.js';
import type { Context } from '../domain/context.js';
import { readSiteFigures, type SiteFigures } from '../domain/site/figures.js';

const REST_MS = 10_000;
const REST_TIMES = 20;
/**
 * Maximum time, in milliseconds, that a scrape waits for new values from the database. A scrape that reaches the limit
 * reports the previous values if they are at most `STALE_MS` milliseconds old.
 */
const WAIT_MS = 3000;
const STALE_MS = 120_000;

type SetGauge = (name: string, labels: Readonly<Record<string, string>>, value: number) => void;

const gauges: Record<string, [help: string, ...labels: string[]]> = {
  tapegate_site_read_success: ['1 if the last attempt to read the site metrics succeeded'],
  tapegate_site_read_seconds: ['Duration of the last read of the site metrics'],
  tapegate_site_queue_files: ['Files in the queue, by state of the recall', 'state'],
  tapegate_site_queue_bytes: ['Bytes in the queue, by state of the recall', 'state'],
  tapegate_site_queue_oldest_seconds: ['Age of the oldest file in the queue'],
  tapegate_site_open_requests: ['Requests that have not ended'],
  tapegate_site_engines: ['Engines that use a drive or wait for one'],
  tapegate_site_drives: ['Drives by state: working, idle, free (no engine uses it), suspended', 'library', 'state'],
  tapegate_site_drive_suspended: ['1 if the drive is suspended', 'library', 'drive'],
  tapegate_site_library_suspended: ['1 if the library is suspended', 'library'],
  tapegate_site_library_problem: ['1 if the last call to the library failed', 'library'],
  tapegate_site_disk_size_bytes: ['Bytes that Tapegate may use on the restore disk', 'disk'],
  tapegate_site_disk_used_bytes: ['Bytes of copies on the restore disk', 'disk'],
  tapegate_site_disk_reserved_bytes: ['Bytes reserved for running recalls', 'disk'],
  tapegate_site_disk_free_bytes: [
    'Free bytes of the file system: the lowest value in the latest measurements of all engines; absent if unknown',
    'disk',
  ],
  tapegate_site_disk_room_bytes: [
    'Bytes available for new copies: the lower of allocation and free bytes, minus reservations',
    'disk',
  ],
  tapegate_site_disk_problem: ['1 if the restore disk is failing or has another problem', 'disk'],
  tapegate_site_disk_suspended: ['1 if the restore disk is suspended', 'disk'],
  tapegate_site_disk_full: ['1 if the restore disk is full, or has too little room for a waiting recall', 'disk'],
  tapegate_site_suspended: ['Suspensions, by kind and mode', 'kind', 'mode'],
  tapegate_site_mail_waiting: ['Emails waiting to be sent'],
  tapegate_site_mail_failing: ['Waiting emails whose last attempt failed'],
  tapegate_site_mail_oldest_seconds: ['Age of the oldest waiting email'],
  tapegate_site_event_batches_unseen: ['Batches of events that no process has read yet'],
};

interface SiteReading {
  figures: SiteFigures;
  at: number;
  tookMs: number;
}

class SiteReader {
  private readonly ctx: Context;
  private last: SiteReading | undefined;
  private restUntil = 0;
  private reading: Promise<void> | undefined;
  isGood = false;

  constructor(ctx: Context) {
    this.ctx = ctx;
  }

  /** @returns the latest figures; undefined if there are none, or if they are older than `STALE_MS` milliseconds */
  async get(): Promise<SiteReading | undefined> {
    if (performance.now() >= this.restUntil) this.reading ??= this.read();
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<void>((resolve) => {
      timer = setTimeout(resolve, WAIT_MS).unref();
    });
    await Promise.race([this.reading, late]);
    clearTimeout(timer);
    const isKnown = this.last !== undefined && performance.now() - this.last.at < STALE_MS;
    return isKnown ? this.last : undefined;
  }

  private async read(): Promise<void> {
    const startedAt = performance.now();
    try {
      const figures = await readSiteFigures(this.ctx);
      this.last = { figures, at: performance.now(), tookMs: performance.now() - startedAt };
      this.isGood = true;
    } catch (error) {
      this.isGood = false;
      logFailure(this.ctx.log, error, 'cannot read the site metrics');
    } finally {
      const tookMs = performance.now() - startedAt;
      this.restUntil = performance.now() + Math.max(REST_MS, tookMs * REST_TIMES);
      this.reading = undefined;
    }
  }
}

/** Adds the site's gauges. @returns a function that updates the gauges before the registry is read */
export function addSiteGauges(ctx: Context, registry: Registry): () => Promise<void> {
  const made = new Map(
    Object.entries(gauges).map(([name, [help, ...labelNames]]) => [
      name,
      new Gauge({
        name,
        help: `${help}. Every process reports the same value`,
        labelNames,
        registers: [registry],
      }),
    ]),
  );
  const reader = new SiteReader(ctx);
  const setGauge: SetGauge = (name, labels, value) => made.get(name)?.set(labels, value);
  return async () => {
    const seen = await reader.get();
    for (const [name, gauge] of made) {
      gauge.reset();
      // remove the value 0, to which `reset` sets a gauge without labels, because 0 would look like a measured value
      if (gauges[name]?.length === 1) gauge.remove();
    }
    setGauge('tapegate_site_read_success', {}, reader.isGood && seen ? 1 : 0);
    if (!seen) return;
    setGauge('tapegate_site_read_seconds', {}, seen.tookMs / 1000);
    setFigures(seen.figures, setGauge);
  };
}

function setFigures(
  { queue, drives, libraries, disks, suspensions, mail, ...site }: SiteFigures,
  setGauge: SetGauge,
): void {
  for (const state of ['WAITING', 'RUNNING']) {
    const { files = 0, bytes = 0 } = queue.find((part) => part.state === state) ?? {};
    setGauge('tapegate_site_queue_files', { state: state.toLowerCase() }, files);
    setGauge('tapegate_site_queue_bytes', { state: state.toLowerCase() }, bytes);
  }
  const waiting = queue.find(({ state }) => state === 'WAITING');
  setGauge('tapegate_site_queue_oldest_seconds', {}, waiting?.seconds ?? 0);
  setGauge('tapegate_site_open_requests', {}, Number(site.openRequests));
  setGauge('tapegate_site_engines', {}, site.engines);
  for (const { library, isSuspended, hasProblem } of libraries) {
    setGauge('tapegate_site_library_suspended', { library }, Number(isSuspended));
    setGauge('tapegate_site_library_problem', { library }, Number(hasProblem));
    for (const state of ['suspended', 'working', 'idle', 'free']) {
      const number = drives.filter((drive) => drive.library === library && drive.state === state).length;
      setGauge('tapegate_site_drives', { library, state }, number);
    }
  }
  for (const { library, drive, state } of drives) {
    setGauge('tapegate_site_drive_suspended', { library, drive }, Number(state === 'suspended'));
  }
  for (const disk of disks) setDiskFigures(disk, setGauge);
  for (const { kind, mode, number } of suspensions) {
    setGauge('tapegate_site_suspended', { kind: kind.toLowerCase(), mode: mode.toLowerCase() }, number);
  }
  setGauge('tapegate_site_mail_waiting', {}, mail.waiting);
  setGauge('tapegate_site_mail_failing', {}, mail.failing);
  setGauge('tapegate_site_mail_oldest_seconds', {}, mail.oldestSeconds);
  setGauge('tapegate_site_event_batches_unseen', {}, site.unnumberedBatches);
}

function setDiskFigures(seen: SiteFigures['disks'][number], setGauge: SetGauge): void {
  const { disk, size, used, reserved, free } = seen;
  setGauge('tapegate_site_disk_size_bytes', { disk }, size);
  setGauge('tapegate_site_disk_used_bytes', { disk }, used);
  setGauge('tapegate_site_disk_reserved_bytes', { disk }, reserved);
  const room = Math.max(0, size - used - reserved);
  if (free !== null) {
    setGauge('tapegate_site_disk_free_bytes', { disk }, free);
    // subtract all reserved bytes from the free bytes, because the engines have not yet written most reserved bytes
    setGauge('tapegate_site_disk_room_bytes', { disk }, Math.min(room, Math.max(0, free - reserved)));
  }
  setGauge('tapegate_site_disk_problem', { disk }, Number(seen.hasProblem));
  setGauge('tapegate_site_disk_suspended', { disk }, Number(seen.isSuspended));
  setGauge('tapegate_site_disk_full', { disk }, Number(seen.isFull));
}
