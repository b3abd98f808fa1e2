/**
 * CRC-64/NVME and CRC-32C, which S3 has of nearly every object and Node.js does not have, in WebAssembly.
 *
 * A checksum is the remainder of the bytes, as a polynomial, by a fixed one; so it is the remainder of their remainder by a multiple of that. There are
 * multiples with few terms that stand whole words apart: of these the remainder takes a few additions of whole words for each word, and no multiplication and no
 * table. What is left in the end, a few hundred words, goes through tables, eight bytes a step. That is three times as fast as tables for all.
 */
import { assembleModule, TABLES, WORD_BYTES } from './crc-module.js';

/** What is used of it; the types of Node.js do not have it. */
declare const WebAssembly: {
  Module: new (bytes: Uint8Array) => object;
  Instance: new (module: object) => { exports: Exports };
};

type Work = (place: number, count: number, register: bigint) => bigint;

interface Exports {
  memory: { buffer: ArrayBuffer };
  update: Work;
  fold: Work;
}

/** Reflected, as both are. One of 32 bits is one of 64 whose upper half is always empty. */
export interface CrcForm {
  bits: 32 | 64;
  polynomial: bigint;
  /**
   * A multiple of the polynomial: the powers of x to the 128 that it is the sum of, beside that of `span`. They were found by a search for sums of
   * such powers that have the remainder 0, which the tests work out again.
   */
  terms: readonly number[];
  span: number;
}

export const CRC64NVME: CrcForm = {
  bits: 64,
  polynomial: 0x9a6c9329ac4bc9b5n,
  terms: [0, 701, 704, 804, 1058, 1791, 2186],
  span: 2602,
};
export const CRC32C: CrcForm = { bits: 32, polynomial: 0x82f63b78n, terms: [0, 14, 39, 54, 144], span: 209 };

const PAGE_BYTES = 65_536;

/** The tables are in the first page; behind them the words that are not added to others yet, and the bytes that come. */
const PLACE = PAGE_BYTES;
const BUFFER_BYTES = 4 * PAGE_BYTES;

interface Machine {
  /** From `PLACE` on. */
  memory: Uint8Array;
  exports: Exports;
  /** Whose words are there. */
  owner: Crc | undefined;
}

const machines = new Map<CrcForm, Machine>();

/** The checksum of bytes that come piece by piece. */
export class Crc {
  private readonly form: CrcForm;
  private readonly machine: Machine;
  /** Bytes of the words that are not added to others yet. */
  private readonly open: number;
  /** What stands in the memory, while somebody else's does. */
  private saved: Uint8Array | undefined;
  /** Bytes that were folded. */
  private folded = 0;
  /** Bytes behind the open words that make no whole word yet. */
  private rest = 0;

  constructor(form: CrcForm) {
    this.form = form;
    this.machine = machines.get(form) ?? createMachine(form);
    machines.set(form, this.machine);
    this.open = form.span * WORD_BYTES;
  }

  update(bytes: Uint8Array): void {
    this.enter();
    for (let start = 0; start < bytes.length; ) {
      const piece = bytes.subarray(start, start + BUFFER_BYTES - this.rest);
      this.machine.memory.set(piece, this.open + this.rest);
      this.rest += piece.length;
      start += piece.length;
      this.fold();
    }
  }

  /** The highest byte first. */
  digest(): Buffer {
    this.enter();
    const { form, open, folded, rest, machine } = this;
    const before = Math.min(folded, open);
    const register = machine.exports.update(PLACE + open - before, before + rest, folded > 0 ? 0n : onesOf(form));
    const value = BigInt.asUintN(64, register) ^ onesOf(form);
    return Buffer.from(value.toString(16).padStart(form.bits / 4, '0'), 'hex');
  }

  private fold(): void {
    const { open, machine } = this;
    const whole = this.rest - (this.rest % WORD_BYTES);
    if (whole === 0) return;
    if (this.folded === 0) this.invert();
    machine.exports.fold(PLACE, whole, 0n);
    machine.memory.copyWithin(0, whole, open + this.rest);
    this.folded += whole;
    this.rest -= whole;
  }

  /** The register begins with ones, which is as if the first bits were the other way round. */
  private invert(): void {
    const { memory } = this.machine;
    for (let at = this.open; at < this.open + this.form.bits / 8; at++) memory[at] = ~(memory[at] ?? 0);
  }

  /** Several may be worked on in turns. */
  private enter(): void {
    const { machine, open } = this;
    if (machine.owner === this) return;
    if (machine.owner) machine.owner.saved = machine.memory.slice(0, open + WORD_BYTES);
    if (this.saved) machine.memory.set(this.saved);
    else machine.memory.fill(0, 0, open);
    this.saved = undefined;
    machine.owner = this;
  }
}

function onesOf({ bits }: CrcForm): bigint {
  return (1n << BigInt(bits)) - 1n;
}

function createMachine(form: CrcForm): Machine {
  const { terms, span } = form;
  const pages = 1 + Math.ceil((span * WORD_BYTES + BUFFER_BYTES) / PAGE_BYTES);
  const module = new WebAssembly.Module(assembleModule({ pages, terms, span }));
  const { exports } = new WebAssembly.Instance(module);
  fillTables(new BigUint64Array(exports.memory.buffer, 0, TABLES * 256), form);
  return { memory: new Uint8Array(exports.memory.buffer, PLACE), exports, owner: undefined };
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
