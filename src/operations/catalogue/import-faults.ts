/** What an import reads, and what is wrong with it. */
import type { RowError } from './import-lines.js';
import type { CatalogueRow } from './import-rows.js';

/** Faults listed before an import gives up. */
export const MAX_FAULTS = 20;

/** What is wrong with an import, a line each; nothing of it was stored. */
export class ImportError extends Error {
  readonly faults: string[];

  /** @param faults one more than are listed, where there are more */
  constructor(faults: string[]) {
    const listed = faults.slice(0, MAX_FAULTS);
    const more = faults.length > MAX_FAULTS ? `\n  … (only the first ${MAX_FAULTS} are listed)` : '';
    super(`nothing was imported:\n${listed.map((fault) => `  ${fault}`).join('\n')}${more}`);
    this.faults = listed;
  }
}

/** Rows, or what is wrong with them. */
export type RowSource = AsyncIterable<CatalogueRow | RowError> | Iterable<CatalogueRow | RowError>;
