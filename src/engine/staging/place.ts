/** A staging library, as the engine works with it. */
import type { Context } from '../../context.js';
import { DEPTH_FILES, type Library } from '../../operations/libraries/libraries.js';
import type { Site } from '../../tape/kind.js';
import { createStagingLibrary } from '../../tape/kinds.js';
import type { StagingLibrary } from '../../tape/staging.js';
import { UsageNotes } from './usage.js';

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
