/**
 * The drives of a process, grouped by library. If a library is unavailable, the drives of other libraries continue to
 * work.
 */
import { randomUUID } from 'node:crypto';
import { hostname } from 'node:os';
import type { Context } from '../domain/context.js';
import { type DriveRange, deleteGoneProcesses } from '../domain/recalls/drives.js';
import type { Site } from '../tape/kind.js';
import { type DriveWork, runDrive } from './drive/drive.js';
import { VolumeFailures } from './drive/drive-failures.js';
import type { DriveOptions } from './drive/options.js';
import { DriveShare } from './drive/share.js';
import { FollowedLibraries, readingKey } from './followed-libraries.js';
import { workOf } from './work.js';

export type SharedOptions = Omit<DriveOptions, 'engineId' | 'library' | 'share' | 'failures'>;

interface DriveGroup {
  engineId: string;
  failures: VolumeFailures;
  ended: Promise<unknown>;
}

export class DriveGroups {
  /** Drives of all libraries except the one in the data directory (`FIRST_LIBRARY`). */
  readonly others: FollowedLibraries;
  private readonly ctx: Context;
  private readonly shared: SharedOptions;
  private readonly engine: { engineId: string; host: string };
  /**
   * All groups with running drives. The group of a changed or removed library stays in this set until the group's
   * drives have finished their work.
   */
  private readonly groups = new Set<DriveGroup>();

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
    this.engine = { engineId, host };
    this.others = new FollowedLibraries(ctx, {
      keyOf: readingKey,
      stop: shared.stop,
      work: async (library, stop) => {
        const group = await this.start(library, workOf(ctx, library, env), library.drives, stop);
        await group.ended;
      },
    });
  }

  /** @param stop signal after whose abort the drives do not start new work */
  async start(library: DriveRange, work: DriveWork, count: number, stop = this.shared.stop): Promise<DriveGroup> {
    const [engineId, failures] = [randomUUID(), new VolumeFailures()];
    const share = new DriveShare(this.ctx, {
      id: engineId,
      ...this.engine,
      library,
      drives: count,
      reach: library.drives,
      weight: this.ctx.config.engineWeight,
    });
    await deleteGoneProcesses(this.ctx);
    stop.addEventListener('abort', () => share.retire());
    const options: DriveOptions = { ...this.shared, stop, engineId, library, share, failures };
    const drives = Array.from({ length: count }, () => runDrive(this.ctx, work, options));
    const ended = Promise.all(drives)
      .then(() => share.leave())
      .finally(() => this.groups.delete(group));
    const group: DriveGroup = { engineId, failures, ended };
    this.groups.add(group);
    return group;
  }

  get engineIds(): string[] {
    return [...this.groups].map(({ engineId }) => engineId);
  }

  endPauses(): void {
    for (const { failures } of this.groups) failures.endPauses();
  }

  get ended(): Promise<unknown> {
    return Promise.all([...this.groups].map(({ ended }) => ended));
  }
}
