/** Libraries other than the first that this program supports. Each unsupported one is logged once. */
import type { Context } from '../context.js';
import { SettingsError } from '../errors.js';
import { FIRST_LIBRARY, type Library, readLibraries } from '../operations/libraries/libraries.js';
import { checkLibrary } from '../tape/kinds.js';

export class UsableLibraries {
  private readonly ctx: Context;
  /** Unsupported libraries by id, as they were; a changed one is checked again. */
  private readonly refused = new Map<number, string>();

  constructor(ctx: Context) {
    this.ctx = ctx;
  }

  /** @param contract default all @returns libraries in order of creation */
  async read(contract?: Library['contract']): Promise<Library[]> {
    const libraries = (await readLibraries(this.ctx)).filter(({ id }) => id !== FIRST_LIBRARY);
    return libraries.filter(
      (library) => (contract === undefined || library.contract === contract) && this.isUsable(library),
    );
  }

  private isUsable({ id, name, kind, settings }: Library): boolean {
    const seen = JSON.stringify([kind, settings]);
    if (this.refused.get(id) === seen) return false;
    try {
      checkLibrary(kind, settings);
      return true;
    } catch (error) {
      if (!(error instanceof SettingsError)) throw error;
      this.refused.set(id, seen);
      this.ctx.log.error({ library: name }, `this program cannot work with the library ${name}: ${error.message}`);
      return false;
    }
  }
}

/** Changes when the library must be read differently, or by another number of drives. */
export function readingKey({ kind, settings, drives }: Library): string {
  return JSON.stringify([kind, settings, drives]);
}

/** Changes when requests to the library must be made differently. */
export function askingKey({ kind, settings, depthFiles, depthBytes }: Library): string {
  return JSON.stringify([kind, settings, depthFiles, String(depthBytes)]);
}
