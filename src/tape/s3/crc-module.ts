/** The code of crc.ts in WebAssembly, put together here, instruction by instruction: nothing is built, and nothing is shipped that cannot be read. */

/** Tables of 256 numbers of 64 bits, from the beginning of the memory. */
export const TABLES = 8;
const TABLE_BYTES = 256 * 8;

/** Of a vector: what `fold` works on. */
export const WORD_BYTES = 16;

/** Codes of the binary format of WebAssembly. */
const op = {
  block: [0x02, 0x40],
  loop: [0x03, 0x40],
  end: [0x0b],
  br: (depth: number) => [0x0c, depth],
  brIf: (depth: number) => [0x0d, depth],
  get: (local: number) => [0x20, local],
  set: (local: number) => [0x21, local],
  const32: (value: number) => [0x41, ...signed(value)],
  const64: (value: number) => [0x42, ...signed(value)],
  load64: (offset: number) => [0x29, 0, ...unsigned(offset)],
  loadByte: [0x31, 0, 0],
  isZero: [0x45],
  isBelow: [0x49],
  add: [0x6a],
  subtract: [0x6b],
  and: [0x71],
  shiftLeft: [0x74],
  xor64: [0x85],
  shiftRight64: [0x88],
  wrap: [0xa7],
  loadVector: (offset: number) => [0xfd, 0, 0, ...unsigned(offset)],
  storeVector: (offset: number) => [0xfd, 11, 0, ...unsigned(offset)],
  xorVector: [0xfd, 0x51],
} as const;

const PLACE = 0;
const COUNT = 1;
const REGISTER = 2;
const WORD = 3;
const I32 = 0x7f;
const I64 = 0x7e;
const V128 = 0x7b;

/**
 * - `update(place, count, register)`: the register after the bytes from a place on;
 * - `fold(place, count, register)`: takes so many bytes away, from a place on, and adds to the `span` words after each of their words what is the same;
 *   the register stays.
 */
export function assembleModule({
  pages,
  terms,
  span,
}: {
  pages: number;
  terms: readonly number[];
  span: number;
}): Uint8Array {
  const text = (name: string) => [name.length, ...Buffer.from(name)];
  const bodyOf = (...steps: number[][]) => {
    const code = [1, 1, V128, ...steps.flat(), ...op.get(REGISTER), ...op.end];
    return [...unsigned(code.length), ...code];
  };
  const update = bodyOf(stepWhile(8, wholeStep()), stepWhile(1, byteStep()));
  const fold = bodyOf(stepWhile(WORD_BYTES, foldStep(terms, span)));
  return Uint8Array.from([
    ...[0, 0x61, 0x73, 0x6d, 1, 0, 0, 0],
    ...section(1, [1, 0x60, 3, I32, I32, I64, 1, I64]),
    ...section(3, [2, 0, 0]),
    ...section(5, [1, 0, ...unsigned(pages)]),
    ...section(7, [3, ...text('memory'), 2, 0, ...text('update'), 0, 0, ...text('fold'), 0, 1]),
    ...section(10, [2, ...update, ...fold]),
  ]);
}

/** A step for as long as there are so many bytes. */
function stepWhile(bytes: number, step: readonly number[]): number[] {
  const leave = [...op.get(COUNT), ...op.const32(bytes), ...op.isBelow, ...op.brIf(1)];
  const forth = [...op.get(PLACE), ...op.const32(bytes), ...op.add, ...op.set(PLACE)];
  const less = [...op.get(COUNT), ...op.const32(bytes), ...op.subtract, ...op.set(COUNT)];
  return [...op.block, ...op.loop, ...leave, ...step, ...forth, ...less, ...op.br(0), ...op.end, ...op.end];
}

function wholeStep(): number[] {
  const mix = [...op.get(PLACE), ...op.load64(0), ...op.get(REGISTER), ...op.xor64, ...op.set(REGISTER)];
  const looked = Array.from({ length: TABLES }, (_, byte) => [
    ...op.get(REGISTER),
    ...op.const64(8 * byte),
    ...op.shiftRight64,
    ...lookUp(TABLES - 1 - byte),
    ...(byte === 0 ? [] : op.xor64),
  ]);
  return [...mix, ...looked.flat(), ...op.set(REGISTER)];
}

/** The first word of those that a multiple of the polynomial spans is taken away by adding it to the others. */
function foldStep(terms: readonly number[], span: number): number[] {
  const added = terms.map((term) => {
    const offset = (span - term) * WORD_BYTES;
    const sum = [...op.get(PLACE), ...op.loadVector(offset), ...op.get(WORD), ...op.xorVector];
    return [...op.get(PLACE), ...sum, ...op.storeVector(offset)];
  });
  return [...op.get(PLACE), ...op.loadVector(0), ...op.set(WORD), ...added.flat()];
}

function byteStep(): number[] {
  const mixed = [...op.get(PLACE), ...op.loadByte, ...op.get(REGISTER), ...op.xor64];
  const rest = [...op.get(REGISTER), ...op.const64(8), ...op.shiftRight64];
  return [...mixed, ...lookUp(0), ...rest, ...op.xor64, ...op.set(REGISTER)];
}

/** What a table has for the lowest byte of what is on the stack. */
function lookUp(table: number): number[] {
  const place = [...op.wrap, ...op.const32(255), ...op.and, ...op.const32(3), ...op.shiftLeft];
  return [...place, ...op.load64(table * TABLE_BYTES)];
}

function section(id: number, content: readonly number[]): number[] {
  return [id, ...unsigned(content.length), ...content];
}

/** Seven bits a byte, the lowest first. */
function unsigned(value: number): number[] {
  return value < 128 ? [value] : [(value & 127) | 128, ...unsigned(value >>> 7)];
}

function signed(value: number): number[] {
  return value < 64 ? [value] : [(value & 127) | 128, ...signed(value >>> 7)];
}
