/** A staging library in an engine. Request counts are written every few seconds; a killed process loses the latest. */
import type { Context } from '../../context.js';
import { logFailure } from '../../errors.js';
import { addUsage, DEPTH_FILES, type Library } from '../../operations/libraries/libraries.js';
import type { Site } from '../../tape/kind.js';
import { createStagingLibrary } from '../../tape/kinds.js';
import { countUsage, type StagingLibrary } from '../../tape/staging.js';

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

export class UsageNotes {
  private readonly libraryId: number;
  private readonly library: Pick<StagingLibrary, 'usage'>;
  private writtenAt = Number.NEGATIVE_INFINITY;

  constructor(libraryId: number, library: Pick<StagingLibrary, 'usage'>) {
    this.libraryId = libraryId;
    this.library = library;
  }

  /** Called regularly. Never rejects: a failed write is repeated the next time. */
  async write(ctx: Context, when: 'now and then' | 'now'): Promise<void> {
    const { usage } = this.library;
    if (!usage || (when === 'now and then' && performance.now() - this.writtenAt < WRITE_MS)) return;
    this.writtenAt = performance.now();
    const taken = [...usage];
    usage.clear(); // at once, so that a concurrent call does not write the same
    const more = taken.map(([request, { requests, bytes }]) => ({ request, sent: BigInt(requests), bytes }));
    await addUsage(ctx, this.libraryId, more).catch((error: unknown) => {
      for (const [request, used] of taken) countUsage(usage, request, used);
      logFailure(ctx.log, error, 'usage');
    });
  }
}
