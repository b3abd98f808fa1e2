/** A staging library in an engine. Request counts are written every few seconds; a killed process loses the latest. */
import type { Context } from '../../context.js';
import { logFailure } from '../../errors.js';
import { addUsage, DEPTH_FILES, type Library, type RequestUsage } from '../../operations/libraries/libraries.js';
import type { Site } from '../../tape/kind.js';
import { createStagingLibrary } from '../../tape/kinds.js';
import type { StagingLibrary, Usage } from '../../tape/staging.js';

export interface StagingPlace {
  id: number;
  name: string;
  library: StagingLibrary;
  usage: UsageNotes;
  /** Limit of requested, unread files; if `bytes` is null, only the restore area limits bytes. */
  depth: { files: number; bytes: bigint | null };
}

/** @throws SettingsError if this program does not support the library */
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
  /** Usage already written, by request name. */
  private readonly written = new Map<string, Usage>();
  private writtenAt = Number.NEGATIVE_INFINITY;

  constructor(libraryId: number, library: Pick<StagingLibrary, 'usage'>) {
    this.libraryId = libraryId;
    this.library = library;
  }

  /** Called regularly. Never rejects: a failed write is repeated the next time. */
  async write(ctx: Context, when: 'now and then' | 'now'): Promise<void> {
    if (when === 'now and then' && performance.now() - this.writtenAt < WRITE_MS) return;
    this.writtenAt = performance.now();
    const more = this.takeNew();
    await addUsage(ctx, this.libraryId, more).catch((error: unknown) => {
      for (const { request, ...used } of more) this.note(request, used, -1);
      logFailure(ctx.log, error, 'usage');
    });
  }

  /** Marks usage as written at once, so that a concurrent call does not write it again. */
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
