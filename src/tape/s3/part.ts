/** A part of an object, which is taken into memory as fast as it comes, and given out in order. */
import type { S3Body } from './request-handler.js';

export class Part {
  /** What has come, and nobody has taken. */
  private readonly chunks: Uint8Array[] = [];
  private readonly body: S3Body;
  private left: number;
  private isOver = false;
  private error: unknown;
  private wake: () => void = () => {};

  /**
   * @param length how many bytes are wanted: those after them are left where they are
   * @param count is told of each piece
   */
  constructor(body: S3Body, length: number, count: (bytes: number) => void) {
    this.body = body;
    this.left = length;
    this.takeAll(count).then(
      () => this.end(),
      (error: unknown) => this.end(error),
    );
  }

  /** Whatever is on its way is not wanted any more. */
  drop(): void {
    this.end();
    this.chunks.length = 0;
  }

  /** The next piece, where it is there. */
  take(): Uint8Array | undefined {
    return this.chunks.shift();
  }

  /**
   * Waits for the next piece.
   * @returns false when there is none any more
   * @throws what the connection failed with, or that less has come than was to come
   */
  async hasMore(): Promise<boolean> {
    while (this.chunks.length === 0 && !this.isOver) {
      await new Promise<void>((resolve) => {
        this.wake = resolve;
      });
    }
    if (this.chunks.length > 0) return true;
    if (this.error !== undefined) throw this.error;
    if (this.left > 0) throw new Error(`the connection ended ${this.left} bytes before the end`);
    return false;
  }

  private async takeAll(count: (bytes: number) => void): Promise<void> {
    for await (const chunk of this.body.blocks) {
      count(chunk.length);
      if (this.isOver) return;
      const wanted = chunk.length > this.left ? chunk.subarray(0, this.left) : chunk;
      this.left -= wanted.length;
      if (wanted.length > 0) this.chunks.push(wanted);
      if (wanted.length < chunk.length) return;
      this.wake();
    }
  }

  private end(error?: unknown): void {
    if (this.isOver) return;
    this.isOver = true;
    if (this.left > 0) this.error = error;
    this.body.destroy(); // where all of it was read its connection is somebody else's by now
    this.wake();
  }
}
