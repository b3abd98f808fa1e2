/** What libraries charge for bringing files, by their settings: added in whole millionths of a currency, so that sums are exact. */
import type { Context } from '../../context.js';
import type { Library } from '../libraries/libraries.js';

export interface Price {
  /** A decimal number with two to six digits after the point. */
  amount: string;
  /** Three letters. */
  currency: string;
}

export interface LibraryPrice extends Price {
  library: string;
  /** That it would be asked for, and bytes of these. */
  files: number;
  bytes: bigint;
  /** For people: what it is made of. */
  note: string;
}

/** Files of a library, some of which need not be brought. */
export interface PricedFiles {
  libraryId: number | null;
  /** They are there already, or somebody else has asked for them. */
  isFree: boolean;
  files: number;
  bytes: bigint;
}

/**
 * @returns what each library charges, in the order in which they were added, and all of it; no `price` where nobody charges for anything, or
 *   not all in one currency
 */
export function priceFiles(
  ctx: Context,
  libraries: readonly Library[],
  groups: readonly PricedFiles[],
): { prices: LibraryPrice[]; price: Price | undefined } {
  const priced = libraries.flatMap((library) => {
    const own = groups.filter(({ libraryId }) => libraryId === library.id);
    return own.length > 0 ? priceOne(ctx, library, own) : [];
  });
  const [currency, ...others] = new Set(priced.map((each) => each.currency));
  const micros = priced.reduce((sum, each) => sum + each.micros, 0n);
  return {
    prices: priced.map(({ micros: own, ...price }) => ({ ...price, amount: formatAmount(own) })),
    price: currency === undefined || others.length > 0 ? undefined : { amount: formatAmount(micros), currency },
  };
}

/** @returns nothing where it charges for nothing */
function priceOne(
  ctx: Context,
  library: Library,
  groups: readonly PricedFiles[],
): (Omit<LibraryPrice, 'amount'> & { micros: bigint })[] {
  const terms = ctx.stagingTermsOf(library);
  if (!terms.price) return [];
  const charged = groups.filter(({ isFree }) => !isFree);
  const files = charged.reduce((sum, group) => sum + group.files, 0);
  const bytes = charged.reduce((sum, group) => sum + group.bytes, 0n);
  const { currency, parts } = terms.price({ count: files, bytes });
  const micros = parts.reduce((sum, part) => sum + part.micros, 0n);
  const note = parts.map((part) => `${formatAmount(part.micros)} ${part.what}`).join(', ');
  return [{ library: library.name, files, bytes, currency, micros, note }];
}

function formatAmount(micros: bigint): string {
  const fraction = String(micros % 1_000_000n).padStart(6, '0');
  return `${micros / 1_000_000n}.${fraction.replace(/0{1,4}$/, '')}`;
}
