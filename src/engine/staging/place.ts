/** A staging library in an engine. Its request counts are written after each piece of work. */

import { logFailure } from '../../core/errors.js';
import type { Context } from '../../domain/context.js';
import { addUsage, DEPTH_FILES, type Library } from '../../domain/libraries/libraries.js';
import type { Site } from '../../tape/kind.js';
import { createStagingLibrary } from '../../tape/kinds.js';
import { countUsage, type StagingLibrary } from '../../tape/staging.js';

export interface StagingPlace {
  id: number;
  name: string;
  library: StagingLibrary;
  /** Limit of requested, unread files; if `bytes` is null, only the restore area limits bytes. */
  depth: { files: number; bytes: bigint | null };
}

/** @throws SettingsError if this program does not support the library */
export function openPlace(ctx: Context, registered: Library, env: Site['env']): StagingPlace {
  const { id, name, depthFiles, depthBytes } = registered;
  const library = createStagingLibrary(registered, { dataDir: ctx.config.dataDir, env });
  return { id, name, library, depth: { files: depthFiles ?? DEPTH_FILES, bytes: depthBytes } };
}

/** Called after each piece of work. Never rejects: a failed write is repeated the next time. */
export async function writeUsage(ctx: Context, { id, library: { usage } }: StagingPlace): Promise<void> {
  if (!usage) return;
  const taken = [...usage];
  usage.clear(); // at once, so that a concurrent call does not write the same
  const more = taken.map(([request, { requests, bytes }]) => ({ request, sent: BigInt(requests), bytes }));
  await addUsage(ctx, id, more).catch((error: unknown) => {
    for (const [request, used] of taken) countUsage(usage, request, used);
    logFailure(ctx.log, error, 'usage');
  });
}
