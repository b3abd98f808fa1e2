/** A staging library as the engine uses it. What it counts of its requests is written every few seconds; a process that is killed loses the last of them. */
import type { Context } from '../../context.js';
import { logFailure } from '../../errors.js';
import { addUsage, DEPTH_FILES, type Library, type RequestUsage } from '../../operations/libraries/libraries.js';
import type { Site } from '../../tape/kind.js';
import { createStagingLibrary } from '../../tape/kinds.js';
import type { StagingLibrary, Usage } from '../../tape/staging.js';

export interface StagingPlace {
  /** Of its row. */
  id: number;
  /** By which operators know it. */
  name: string;
  library: StagingLibrary;
  /** What it counts of what it is sent. */
  usage: UsageNotes;
  /** What may be asked for and not be read yet; without a number of bytes the restore area is the only bound of these. */
  depth: { files: number; bytes: bigint | null };
}

/** @throws SettingsError where this program cannot work with it */
export function openPlace(ctx: Context, registered: Library, env: Site['env']): StagingPlace {
  const { id, name, depthFiles, depthBytes } = registered;
  const library = createStagingLibrary(registered, { dataDir: ctx.config.dataDir, env });
  const usage = new UsageNotes(id, library);
  return { id, name, library, usage, depth: { files: depthFiles ?? DEPTH_FILES, bytes: depthBytes } };
}

const WRITE_MS = 5000;

const NONE: Usage = { requests: 0, bytes: 0n };

export class UsageNotes {
  private readonly libraryId: number;
  private readonly library: Pick<StagingLibrary, 'usage'>;
  /** What is written, by the names of requests. */
  private readonly written = new Map<string, Usage>();
  private writtenAt = Number.NEGATIVE_INFINITY;

  constructor(libraryId: number, library: Pick<StagingLibrary, 'usage'>) {
    this.libraryId = libraryId;
    this.library = library;
  }

  /** To be called every now and then. Never rejects: what cannot be written is written the next time. */
  async write(ctx: Context, when: 'now and then' | 'now'): Promise<void> {
    if (when === 'now and then' && performance.now() - this.writtenAt < WRITE_MS) return;
    this.writtenAt = performance.now();
    const more = this.takeNew();
    await addUsage(ctx, this.libraryId, more).catch((error: unknown) => {
      for (const { request, ...used } of more) this.note(request, used, -1);
      logFailure(ctx.log, error, 'usage');
    });
  }

  /** It counts as written from now on, so that nobody else writes it meanwhile. */
  private takeNew(): RequestUsage[] {
    return Object.entries(this.library.usage ?? {}).flatMap(([request, now]): RequestUsage[] => {
      const before = this.written.get(request) ?? NONE;
      const more = { sent: BigInt(now.requests - before.requests), bytes: now.bytes - before.bytes };
      if (more.sent === 0n && more.bytes === 0n) return [];
      this.note(request, more, 1);
      return [{ request, ...more }];
    });
  }

  private note(request: string, used: Pick<RequestUsage, 'sent' | 'bytes'>, sign: 1 | -1): void {
    const { requests, bytes } = this.written.get(request) ?? NONE;
    this.written.set(request, {
      requests: requests + sign * Number(used.sent),
      bytes: bytes + BigInt(sign) * used.bytes,
    });
  }
}
