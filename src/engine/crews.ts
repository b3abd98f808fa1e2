/** The drives of a process, by library. They share only restore disks: an unavailable library delays no other. */
import { randomUUID } from 'node:crypto';
import { setMaxListeners } from 'node:events';
import { hostname } from 'node:os';
import type { Context } from '../context.js';
import { FIRST_LIBRARY, type Library } from '../operations/libraries/libraries.js';
import type { DriveRange } from '../operations/recalls/drives.js';
import type { Site } from '../tape/kind.js';
import { type DriveWork, runDrive } from './drive/drive.js';
import { VolumeFailures } from './drive/drive-failures.js';
import type { DriveOptions } from './drive/options.js';
import { DriveShare } from './drive/share.js';
import { readingKey, UsableLibraries } from './usable-libraries.js';
import { workOf } from './work.js';

export type SharedOptions = Omit<DriveOptions, 'engineId' | 'library' | 'share' | 'failures'>;

interface Crew {
  /** `readingKey` of the library; undefined for the first library, which never changes. */
  key: string | undefined;
  engineId: string;
  share: DriveShare;
  failures: VolumeFailures;
  stop: AbortController;
  ended: Promise<unknown>;
}

export class Crews {
  private readonly ctx: Context;
  private readonly shared: SharedOptions;
  private readonly engine: { engineId: string; host: string };
  private readonly crews = new Map<number, Crew>();
  /** Crews of changed or removed libraries: they finish their current work. */
  private readonly leaving = new Set<Crew>();
  private readonly usable: UsableLibraries;
  private readonly env: Site['env'];

  constructor(
    ctx: Context,
    shared: SharedOptions,
    {
      engineId = randomUUID(),
      host = hostname(),
      env = {},
    }: {
      engineId?: string;
      host?: string;
      env?: Site['env'];
    },
  ) {
    this.ctx = ctx;
    this.shared = shared;
    this.usable = new UsableLibraries(ctx);
    this.env = env;
    this.engine = { engineId, host };
  }

  /** @param count drives to use at once */
  async start(library: DriveRange, work: DriveWork, count: number, key?: string): Promise<void> {
    const [engineId, stop, failures] = [randomUUID(), new AbortController(), new VolumeFailures()];
    const share = new DriveShare(this.ctx, {
      id: engineId,
      ...this.engine,
      library,
      drives: count,
      reach: library.drives,
      weight: this.ctx.config.engineWeight,
    });
    await share.join();
    const stops = AbortSignal.any([this.shared.stop, stop.signal]);
    setMaxListeners(0, stops);
    const options: DriveOptions = { ...this.shared, stop: stops, engineId, library, share, failures };
    const drives = Array.from({ length: count }, () => runDrive(this.ctx, work, options));
    this.crews.set(library.id, { key, engineId, share, failures, stop, ended: Promise.all(drives) });
  }

  /** Starts added or changed libraries and stops removed ones; keeps the first one. */
  async follow(): Promise<void> {
    const libraries = await this.usable.read();
    const keys = new Map(libraries.map((library) => [library.id, readingKey(library)]));
    for (const [id, crew] of this.crews) {
      if (id === FIRST_LIBRARY || keys.get(id) === crew.key) continue;
      this.crews.delete(id);
      this.dismiss(crew);
    }
    for (const library of libraries) {
      if (this.crews.has(library.id) || this.shared.stop.aborted) continue;
      await this.startFor(library);
    }
  }

  private async startFor(library: Library): Promise<void> {
    await this.start(library, workOf(this.ctx, library, this.env), library.drives, readingKey(library));
  }

  private dismiss(crew: Crew): void {
    this.leaving.add(crew);
    crew.stop.abort();
    crew.share.retire();
    void crew.ended.then(() => crew.share.leave()).finally(() => this.leaving.delete(crew));
  }

  private get all(): Crew[] {
    return [...this.crews.values(), ...this.leaving];
  }

  get engineIds(): string[] {
    return this.all.map(({ engineId }) => engineId);
  }

  endPauses(): void {
    for (const { failures } of this.all) failures.endPauses();
  }

  get ended(): Promise<unknown> {
    return Promise.all(this.all.map(({ ended }) => ended));
  }

  /** Called before the process stops. Does not wait. */
  retire(): void {
    for (const { share } of this.all) share.retire();
  }

  /** Never rejects. */
  async leave(): Promise<void> {
    await Promise.all(this.all.map(({ share }) => share.leave()));
  }
}
