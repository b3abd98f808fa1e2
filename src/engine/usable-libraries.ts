/** The libraries beside the first one that this program can work with. One that it cannot is told once, and is left to newer programs. */
import type { Context } from '../context.js';
import { SettingsError } from '../errors.js';
import { FIRST_LIBRARY, type Library, readLibraries } from '../operations/libraries/libraries.js';
import { checkLibrary } from '../tape/kinds.js';

export class UsableLibraries {
  private readonly ctx: Context;
  /** By their ids. */
  private readonly refused = new Set<number>();

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
    if (this.refused.has(id)) return false;
    try {
      checkLibrary(kind, settings);
      return true;
    } catch (error) {
      if (!(error instanceof SettingsError)) throw error;
      this.refused.add(id);
      this.ctx.log.error({ library: name }, `this program cannot work with the library ${name}: ${error.message}`);
      return false;
    }
  }
}
