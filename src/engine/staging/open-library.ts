/** Opens the staging library that an engine uses, and writes the library's usage counts to the database. */
import { logFailure } from '../../core/errors.js';
import type { Context } from '../../domain/context.js';
import { addUsage, DEPTH_FILES, type Library } from '../../domain/libraries/libraries.js';
import type { Site } from '../../tape/kind.js';
import { createStagingLibrary } from '../../tape/kinds.js';
import { countUsage, type StagingLibrary } from '../../tape/staging.js';

export interface OpenStagingLibrary {
  id: number;
  name: string;
  library: StagingLibrary;
  /**
   * Maximum number and total size of the files that are requested from the library but not yet read. If `bytes` is
   * null, only the restore area limits the total size.
   */
  depth: { files: number; bytes: bigint | null };
}

/** Opens a registered staging library. @throws SettingsError if this program does not support the library */
export function openStagingLibrary(ctx: Context, registered: Library, env: Site['env']): OpenStagingLibrary {
  const { id, name, depthFiles, depthBytes } = registered;
  const library = createStagingLibrary(registered, { dataDir: ctx.config.dataDir, env });
  return { id, name, library, depth: { files: depthFiles ?? DEPTH_FILES, bytes: depthBytes } };
}

/**
 * Adds the library's request and byte counts to the counts in the database. Never rejects: if the write fails, the next
 * call writes the counts.
 */
export async function writeUsage(ctx: Context, { id, library: { usage } }: OpenStagingLibrary): Promise<void> {
  if (!usage) return;
  const written = [...usage];
  usage.clear(); // clear the counts before the write, so that a concurrent call does not add them again
  const added = written.map(([request, { requests, bytes }]) => ({ request, sent: BigInt(requests), bytes }));
  await addUsage(ctx, id, added).catch((error: unknown) => {
    for (const [request, used] of written) countUsage(usage, request, used);
    logFailure(ctx.log, error, 'usage');
  });
}
