/**
 * CRC-64/NVME and CRC-32C, which S3 has of nearly every object and Node.js does not have: eight bytes a step in WebAssembly, since
 * JavaScript has no fast integers of 64 bits and takes five times as long.
 */

/** What is used of it; the types of Node.js do not have it. */
declare const WebAssembly: {
  Module: new (bytes: Uint8Array) => object;
  Instance: new (module: object) => { exports: { memory: { buffer: ArrayBuffer }; update: Update } };
};

/** @returns the register after the bytes in the memory, from a place on, so many */
type Update = (place: number, count: number, register: bigint) => bigint;

/** Reflected, as both are. One of 32 bits is one of 64 whose upper half is always empty. */
export interface CrcForm {
  bits: 32 | 64;
  polynomial: bigint;
}

export const CRC64NVME: CrcForm = { bits: 64, polynomial: 0x9a6c9329ac4bc9b5n };
export const CRC32C: CrcForm = { bits: 32, polynomial: 0x82f63b78n };

const TABLES = 8;
const TABLE_BYTES = 256 * 8;
const PAGE_BYTES = 65_536;
/** The tables are in the first page, the bytes in those after it. */
const BUFFER_PAGES = 4;
const BUFFER_BYTES = BUFFER_PAGES * PAGE_BYTES;

interface Machine {
  buffer: Uint8Array;
  update: Update;
}

const machines = new Map<CrcForm, Machine>();

/** The checksum of bytes that come piece by piece. */
export class Crc {
  private readonly form: CrcForm;
  private readonly machine: Machine;
  private register: bigint;

  constructor(form: CrcForm) {
    this.form = form;
    this.machine = machines.get(form) ?? createMachine(form);
    machines.set(form, this.machine);
    this.register = onesOf(form);
  }

  update(bytes: Uint8Array): void {
    for (let start = 0; start < bytes.length; start += BUFFER_BYTES) {
      const piece = bytes.subarray(start, start + BUFFER_BYTES);
      this.machine.buffer.set(piece);
      this.register = this.machine.update(PAGE_BYTES, piece.length, this.register);
    }
  }

  /** The highest byte first. */
  digest(): Buffer {
    const value = BigInt.asUintN(64, this.register) ^ onesOf(this.form);
    return Buffer.from(value.toString(16).padStart(this.form.bits / 4, '0'), 'hex');
  }
}

function onesOf({ bits }: CrcForm): bigint {
  return (1n << BigInt(bits)) - 1n;
}

function createMachine(form: CrcForm): Machine {
  const { memory, update } = new WebAssembly.Instance(new WebAssembly.Module(assembleModule())).exports;
  fillTables(new BigUint64Array(memory.buffer, 0, TABLES * 256), form);
  return { buffer: new Uint8Array(memory.buffer, PAGE_BYTES, BUFFER_BYTES), update };
}

/** The n-th has what a byte does to the register when n bytes follow it. */
function fillTables(tables: BigUint64Array, { polynomial }: CrcForm): void {
  for (let byte = 0; byte < 256; byte++) {
    let register = BigInt(byte);
    for (let bit = 0; bit < 8; bit++) register = (register >> 1n) ^ (register & 1n ? polynomial : 0n);
    tables[byte] = register;
  }
  for (let at = 256; at < tables.length; at++) {
    const before = tables[at - 256] ?? 0n;
    tables[at] = (before >> 8n) ^ (tables[Number(before & 255n)] ?? 0n);
  }
}

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
} as const;

const PLACE = 0;
const COUNT = 1;
const REGISTER = 2;
const I32 = 0x7f;
const I64 = 0x7e;

function assembleModule(): Uint8Array {
  const text = (name: string) => [name.length, ...Buffer.from(name)];
  const code = [0, ...stepWhile(8, wholeStep()), ...stepWhile(1, byteStep()), ...op.get(REGISTER), ...op.end];
  return Uint8Array.from([
    ...[0, 0x61, 0x73, 0x6d, 1, 0, 0, 0],
    ...section(1, [1, 0x60, 3, I32, I32, I64, 1, I64]),
    ...section(3, [1, 0]),
    ...section(5, [1, 0, 1 + BUFFER_PAGES]),
    ...section(7, [2, ...text('memory'), 2, 0, ...text('update'), 0, 0]),
    ...section(10, [1, ...unsigned(code.length), ...code]),
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
