/** The libraries beside the first one that this program can work with. One that it cannot is told once, and is left to newer programs. */
import type { Context } from '../context.js';
import { SettingsError } from '../errors.js';
import { FIRST_LIBRARY, type Library, readLibraries } from '../operations/libraries/libraries.js';
import { checkLibrary } from '../tape/kinds.js';

export class UsableLibraries {
  private readonly ctx: Context;
  /** As they were, by their ids: one that was changed is looked at again. */
  private readonly refused = new Map<number, string>();

  constructor(ctx: Context) {
    this.ctx = ctx;
  }

  /** Of a contract, unless all are asked for; in the order in which they were added. */
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

/** Two of the same value are read in the same way, by as many drives. */
export function readingKey({ kind, settings, drives }: Library): string {
  return JSON.stringify([kind, settings, drives]);
}

/** Two of the same value are asked in the same way. */
export function askingKey({ kind, settings, depthFiles, depthBytes }: Library): string {
  return JSON.stringify([kind, settings, depthFiles, String(depthBytes)]);
}
