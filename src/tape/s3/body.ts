/** The body of an answer in the form in which Amazon's client hands it on: a stream, which has the blocks that it would be made of. */
import { Readable } from 'node:stream';
import type { Answer } from '../http/body.js';

export class BlockBody extends Readable {
  readonly blocks: AsyncGenerator<Uint8Array>;
  private readonly close: () => void;

  constructor({ read, response }: Answer, signal: AbortSignal) {
    super();
    this.blocks = read(signal);
    this.close = () => void response.destroy();
  }

  /** Only of an answer that is an error, which the client itself reads. */
  override _read(): void {
    this.blocks.next().then(
      ({ done, value }) => this.push(done ? null : value),
      (error: Error) => this.destroy(error),
    );
  }

  override _destroy(error: Error | null, callback: (error: Error | null) => void): void {
    this.close();
    callback(error);
  }
}

export function piecesOf(body: Readable): AsyncIterable<Uint8Array> {
  return body instanceof BlockBody ? body.blocks : body;
}
