import type { Context } from '../domain/context.js';
import type { Library } from '../domain/libraries/libraries.js';
import type { Site } from '../tape/kind.js';
import { createDriveLibrary } from '../tape/kinds.js';
import { type DriveWork, mountVolumes } from './drive/drive.js';
import { openStagingLibrary } from './staging/open-library.js';
import { readStaged } from './staging/reader.js';

/**
 * Returns the function that an engine runs with a claimed drive of the library.
 * @throws SettingsError if this program does not support the library
 */
export function workOf(ctx: Context, library: Library, env: Site['env']): DriveWork {
  if (library.contract === 'STAGING') return readStaged(openStagingLibrary(ctx, library, env));
  return mountVolumes(createDriveLibrary(library, { dataDir: ctx.config.dataDir, env }));
}
