/** What a client accepts, by RFC 9110 12.5.1: each media type may have a weight, and 0 means never. Pure. */

import { remember } from '../src/remembered.js';

interface Range {
  type: string;
  weight: number;
  /** 3 for a type that is named, 2 for `text/*`, 1 for everything. */
  precision: number;
  place: number;
}

/**
 * The type that the client likes best; among equals the one that it names first, then the first of `types`.
 * @param accept the header; without one everything is accepted
 * @returns undefined when none is acceptable
 */
export function chooseType(accept: string | undefined, types: readonly string[]): string | undefined {
  const choose = choosers.get(types) ?? remember((header) => chooseOf(readRanges(header), types));
  choosers.set(types, choose);
  return choose(accept ?? '');
}

/** By lists of types, most of which are constants. */
const choosers = new WeakMap<readonly string[], (accept: string) => string | undefined>();

function chooseOf(ranges: readonly Range[], types: readonly string[]): string | undefined {
  const ranked = types.flatMap((named, index) => {
    const range = rangeOf(ranges, named);
    return range && range.weight > 0 ? [{ ...range, named, index }] : [];
  });
  ranked.sort((a, b) => b.weight - a.weight || b.precision - a.precision || a.place - b.place || a.index - b.index);
  return ranked[0]?.named;
}

/** Whether the client names the type itself, and accepts it. */
export function isNamed(accept: string | undefined, type: string): boolean {
  const range = rangeOf(readRanges(accept), type);
  return range?.precision === 3 && range.weight > 0;
}

/** The most precise range that holds a type decides. */
function rangeOf(ranges: readonly Range[], type: string): Range | undefined {
  const [kind] = type.split('/');
  const holding = ranges.filter((range) => [type, `${kind}/*`, '*/*'].includes(range.type));
  return holding.sort((a, b) => b.precision - a.precision || a.place - b.place)[0];
}

function readRanges(accept = ''): Range[] {
  if (accept.trim() === '') return [{ type: '*/*', weight: 1, precision: 1, place: 0 }];
  return accept.split(',').flatMap((text, place) => {
    const [type = '', ...parameters] = text.split(';').map((part) => part.trim().toLowerCase());
    const parameter = (name: string) => parameters.find((p) => p.startsWith(`${name}=`))?.slice(name.length + 1);
    const isOurs = (parameter('charset') ?? 'utf-8').replaceAll('"', '') === 'utf-8';
    const weight = Number(parameter('q') ?? 1);
    const precision = type === '*/*' ? 1 : type.endsWith('/*') ? 2 : 3;
    return isOurs && type !== '' ? [{ type, weight: Math.max(weight, 0), precision, place }] : [];
  });
}
