/** The registry of kinds of libraries: one line a kind. `tapegate library add --kind` takes these names. */
import { quote, SettingsError } from '../errors.js';
import type { TapeBackend } from './backend.js';
import { command, commandStaging } from './command/index.js';
import { directory } from './directory-kind.js';
import type { Kind, Site } from './kind.js';
import { ltfs } from './ltfs/index.js';
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

/** A library as it is registered. */
export interface RegisteredLibrary {
  name: string;
  kind: string;
  settings: unknown;
}

/**
 * Makes a library with drives of what is registered. Nothing is opened yet: one that is away is found out when it is used.
 * @throws SettingsError where this program does not know the kind or the settings, as one that is older may not
 */
export function createDriveLibrary(library: RegisteredLibrary, where: Omit<Site, 'name'>): TapeBackend {
  const { name, kind, settings } = library;
  const found = findKind(kind);
  if (found.contract === 'drive') return found.create(found.parse(settings), { ...where, name });
  throw new SettingsError('kind', `must be one of libraries with drives, not ${quote(kind)}`);
}

/** The same of one that stages files. @throws SettingsError */
export function createStagingLibrary(library: RegisteredLibrary, where: Omit<Site, 'name'>): StagingLibrary {
  const { name, kind, settings } = library;
  const found = findKind(kind);
  if (found.contract === 'staging') return found.create(found.parse(settings), { ...where, name });
  throw new SettingsError('kind', `must be one of libraries that stage files, not ${quote(kind)}`);
}

/**
 * What is to be registered, checked: by hosts that need not have the library.
 * @throws SettingsError
 */
export function checkLibrary(kind: string, settings: unknown): { contract: Kind['contract'] } {
  const found = findKind(kind);
  checkSecrets(settings);
  found.parse(settings);
  return { contract: found.contract };
}

/** Of a library of either contract; nothing where this program does not know the kind or the settings, as one that is older may not. */
export function stagingTermsOf({ kind, settings }: Pick<RegisteredLibrary, 'kind' | 'settings'>): StagingTerms {
  try {
    const found = findKind(kind);
    return (found.contract === 'staging' && found.terms?.(found.parse(settings))) || {};
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

/**
 * Settings stand in the database, its backups and what is shown of libraries: what is secret is named there, and kept elsewhere. The value
 * is told to nobody.
 */
function checkSecrets(settings: unknown, name = 'settings'): void {
  if (SECRET.test(name)) {
    const advice = `give ${name}File, the path of a file that has it, or ${name}Env, the name of a variable`;
    throw new SettingsError(
      name,
      `must not be in the settings, which anybody may read who reads the database: ${advice}`,
    );
  }
  if (typeof settings === 'string' && hasPassword(settings)) {
    throw new SettingsError(name, 'must not hold a password: it would stand in the database');
  }
  if (typeof settings !== 'object' || settings === null) return;
  for (const [key, value] of Object.entries(settings)) checkSecrets(value, Array.isArray(settings) ? name : key);
}

function hasPassword(text: string): boolean {
  return URL.canParse(text) && new URL(text).password !== '';
}
