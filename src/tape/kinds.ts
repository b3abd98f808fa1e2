/**
 * The registry of library types: a line each. `tapegate library add --kind` takes the names of `kinds`, TAPEGATE_TAPE_BACKEND those of `firstTypes`.
 * The AWS SDK and undici are loaded by the first request of a library that needs them.
 */
import path from 'node:path';
import { quote, SettingsError } from '../errors.js';
import type { TapeBackend, WritableBackend } from './backend.js';
import { command, commandStaging } from './command/index.js';
import { createDirectoryBackend, directory } from './directory.js';
import { type Kind, parseSettings, type Site } from './kind.js';
import { ltfs } from './ltfs/index.js';
import { createMemoryBackend } from './memory.js';
import { s3 } from './s3/index.js';
import type { StagingLibrary, StagingTerms } from './staging.js';
import { wlcg } from './wlcg/index.js';

export const kinds: Record<string, Kind> = {
  directory,
  s3,
  command,
  ltfs,
  'command-staging': commandStaging,
  wlcg,
};

/** The types of the first library, to which `archive` writes. */
const firstTypes = {
  directory: (dataDir: string) => createDirectoryBackend(path.join(dataDir, 'library')),
  memory: () => createMemoryBackend(),
} satisfies Record<string, (dataDir: string) => WritableBackend>;

/** Makes the first library. @param name as TAPEGATE_TAPE_BACKEND has it */
export function createBackend(name: keyof typeof firstTypes, { dataDir }: { dataDir: string }): WritableBackend {
  return firstTypes[name](dataDir);
}

/** A library as it is registered. */
export interface RegisteredLibrary {
  name: string;
  kind: string;
  settings: unknown;
}

/**
 * Makes a library with drives. Nothing is opened yet: the first use finds out if it is away.
 * @throws SettingsError if this program does not know the type or the settings, as an older version may not
 */
export function createDriveLibrary(
  { name, kind, settings }: RegisteredLibrary,
  where: Omit<Site, 'name'>,
): TapeBackend {
  const found = findKind(kind);
  if (found.contract === 'drive') return found.create(parseSettings(found.settings, settings), { ...where, name });
  throw new SettingsError('kind', `must be one of libraries with drives, not ${quote(kind)}`);
}

/** Makes a library that stages files, in the same way. @throws SettingsError */
export function createStagingLibrary(
  { name, kind, settings }: RegisteredLibrary,
  where: Omit<Site, 'name'>,
): StagingLibrary {
  const found = findKind(kind);
  if (found.contract === 'staging') return found.create(parseSettings(found.settings, settings), { ...where, name });
  throw new SettingsError('kind', `must be one of libraries that stage files, not ${quote(kind)}`);
}

/** Checks a library before it is registered, also on hosts that do not have it. @throws SettingsError */
export function checkLibrary(kind: string, settings: unknown): { contract: Kind['contract'] } {
  const found = findKind(kind);
  checkSecrets(settings);
  parseSettings(found.settings, settings);
  return { contract: found.contract };
}

/** Of a library of either contract; empty if this program does not know the type or the settings, as an older version may not. */
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

const SECRET = /(secret|password|passwd|passphrase|tokens?|credentials?|key)$/i;

/** Settings are stored in the database and its backups, and shown: a secret is kept elsewhere, and named there. No message shows its value. */
function checkSecrets(settings: unknown, name = 'settings'): void {
  if (SECRET.test(name)) {
    const advice = `give ${name}File, the path of a file that has it, or ${name}Env, the name of a variable`;
    const problem = `must not be in the settings, which anybody may read who reads the database: ${advice}`;
    throw new SettingsError(name, problem);
  }
  if (typeof settings === 'string' && URL.canParse(settings) && new URL(settings).password !== '') {
    throw new SettingsError(name, 'must not hold a password: it would stand in the database');
  }
  if (typeof settings !== 'object' || settings === null) return;
  for (const [key, value] of Object.entries(settings)) checkSecrets(value, Array.isArray(settings) ? name : key);
}
