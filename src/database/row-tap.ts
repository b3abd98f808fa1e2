/**
 * The rows of a list, as bytes. The driver makes an object and a text of each row, which costs more than the row costs PostgreSQL; so
 * between a connection and the driver, rows of one column are taken out, moved together where they stand, and passed on as they are.
 * Whatever else comes goes to the driver.
 */
import type { Socket } from 'node:net';

const DATA_ROW = 'D'.charCodeAt(0);
const COMMA = ','.charCodeAt(0);
/** Of a message: its kind, and its length without that. */
const HEAD_BYTES = 5;
/** Of a row of one column: the head, the number of columns, and the length of the column. */
const ROW_BYTES = 11;
const NOTHING = Buffer.alloc(0);

type Listener = (bytes: Buffer) => void;

export class RowTap {
  private readonly stream: Socket;
  private readonly take: (rows: Buffer) => void;
  /** The driver's. */
  private readonly listeners: Listener[];
  /** The beginning of a message that has not come whole. */
  private rest: Buffer = NOTHING;
  private isClosed = false;

  /**
   * To be opened while nothing is on its way.
   * @param take is given whole rows, many at a time, each with a comma before it, in bytes that nobody else uses
   */
  constructor(stream: Socket, take: (rows: Buffer) => void) {
    this.stream = stream;
    this.take = take;
    this.listeners = stream.listeners('data') as Listener[];
    for (const listener of this.listeners) stream.off('data', listener);
    stream.on('data', this.onData);
  }

  /** The driver gets all again. */
  close(): void {
    if (this.isClosed) return;
    this.isClosed = true;
    this.stream.off('data', this.onData);
    for (const listener of this.listeners) this.stream.on('data', listener);
  }

  private readonly onData = (chunk: Buffer): void => {
    const bytes = this.rest.length > 0 ? Buffer.concat([this.rest, chunk]) : chunk;
    let [at, end] = [0, this.endOf(bytes, 0)];
    while (end !== undefined) {
      const from = at;
      let taken = from;
      // rows move towards the first of them, over what the protocol has between
      for (; end !== undefined && bytes[at] === DATA_ROW; at = end, end = this.endOf(bytes, at)) {
        bytes[taken] = COMMA;
        bytes.copyWithin(taken + 1, at + ROW_BYTES, end);
        taken += 1 + end - at - ROW_BYTES;
      }
      if (taken > from) this.take(bytes.subarray(from, taken));
      const others = at;
      for (; end !== undefined && bytes[at] !== DATA_ROW; at = end, end = this.endOf(bytes, at));
      if (at > others) this.forward(bytes.subarray(others, at));
    }
    this.rest = bytes.subarray(at);
    if (this.isClosed && this.rest.length > 0) this.forward(this.rest);
  };

  /** Where the message ends that begins there; undefined where it has not come whole. */
  private endOf(bytes: Buffer, at: number): number | undefined {
    if (bytes.length - at < HEAD_BYTES) return undefined;
    const end = at + 1 + bytes.readInt32BE(at + 1);
    return end <= bytes.length ? end : undefined;
  }

  private forward(bytes: Buffer): void {
    for (const listener of this.listeners) listener.call(this.stream, bytes);
  }
}
