/**
 * The registry of library types, keyed by the names that `tapegate library add --type` accepts. A library loads the AWS
 * SDK or undici only when it sends its first request.
 */
import path from 'node:path';
import { quote, SettingsError } from '../core/errors.js';
import type { LibraryTypeName } from '../core/library-types.js';
import { command, commandStaging } from './command/index.js';
import { createDirectoryLibrary, directory } from './directory/index.js';
import type { DriveLibrary, WritableLibrary } from './drive-library.js';
import { type Kind, parseSettings, type Site } from './kind.js';
import { ltfs } from './ltfs/index.js';
import { s3 } from './s3/index.js';
import type { StagingLibrary, StagingTerms } from './staging.js';
import { wlcg } from './wlcg/index.js';

const implementations: Record<LibraryTypeName, Kind> = {
  directory,
  s3,
  command,
  ltfs,
  'command-staging': commandStaging,
  wlcg,
};

export const kinds: Record<string, Kind> = implementations;

/** Creates the default library, to which the command `archive` writes. */
export function createFirstLibrary({ dataDir }: { dataDir: string }): WritableLibrary {
  return createDirectoryLibrary(path.join(dataDir, 'library'));
}

interface RegisteredLibrary {
  name: string;
  kind: string;
  settings: unknown;
}

/**
 * Creates the object for a registered drive library, but does not check whether the library is available.
 * @throws SettingsError if this version of Tapegate does not know the type or the settings
 */
export function createDriveLibrary(
  { name, kind, settings }: RegisteredLibrary,
  where: Omit<Site, 'name'>,
): DriveLibrary {
  const found = findKind(kind);
  if (found.contract === 'drive') return found.create(parseSettings(found.settings, settings), { ...where, name });
  throw new SettingsError('kind', `must be a library type with drives, not ${quote(kind)}`);
}

/**
 * Creates the object for a registered staging library, without opening connections.
 * @throws SettingsError if this version of Tapegate does not know the type or the settings
 */
export function createStagingLibrary(
  { name, kind, settings }: RegisteredLibrary,
  where: Omit<Site, 'name'>,
): StagingLibrary {
  const found = findKind(kind);
  if (found.contract === 'staging') return found.create(parseSettings(found.settings, settings), { ...where, name });
  throw new SettingsError('kind', `must be a library type that stages files, not ${quote(kind)}`);
}

/**
 * Validates the settings of a library that an operator wants to register. Does not access the library.
 * @throws SettingsError
 */
export function checkLibrary(kind: string, settings: unknown): { contract: Kind['contract'] } {
  const found = findKind(kind);
  parseSettings(found.settings, settings);
  return { contract: found.contract };
}

/**
 * Returns the price, wait and prefixes of a staging library. The result is empty for a drive library, for an unknown
 * library type, and for unknown settings.
 */
export function stagingTermsOf({ kind, settings }: Pick<RegisteredLibrary, 'kind' | 'settings'>): StagingTerms {
  try {
    const found = findKind(kind);
    return found.contract === 'staging' ? found.terms(parseSettings(found.settings, settings)) : {};
  } catch (error) {
    if (error instanceof SettingsError) return {};
    throw error;
  }
}

function findKind(name: string): Kind {
  const kind = Object.hasOwn(kinds, name) ? kinds[name] : undefined;
  if (kind) return kind;
  throw new SettingsError('kind', `must be one of ${Object.keys(kinds).join(', ')}, not ${quote(name)}`);
}
