/**
 * A client that is told what others are told as well, on a connection that carries nothing else. Of its request and what stood around that nothing is
 * kept, since thousands of them may wait for months: the stream is written to its socket, and so is the little that HTTP demands of it.
 */
import type { Socket } from 'node:net';
import type { Request, Response } from 'express';
import { handOver } from '../src/access/stream-sockets.js';
import type { Message, Seat } from './sse-shared.js';
import { HEADERS, PING } from './sse-stream.js';

const frame = (text: string) => Buffer.from(`${Buffer.byteLength(text).toString(16)}\r\n${text}\r\n`);
const PING_FRAME = frame(PING);
const LAST_FRAME = Buffer.from('0\r\n\r\n');
const COMPLETE = 'event: complete\ndata:\n\n';

const textOf = ({ json, eventId }: Message) =>
  `event: next\n${eventId === undefined ? '' : `id: ${eventId}\n`}data: ${json}\n\n`;

/** HTTP/1.0 knows no chunks. */
const forms = {
  chunked: (message: Message) => frame(textOf(message)),
  plain: (message: Message) => Buffer.from(textOf(message)),
};

export class Watcher {
  /** Where it is told from. */
  private seat: Seat | undefined;
  private readonly socket: Socket;
  private readonly isChunked: boolean;
  /** What the system had taken of it when that was looked at; -1 where nothing waits. */
  private taken = -1;
  private stalls = 0;

  /** Writes the header of the stream. @param onClose once, however it ends */
  constructor(req: Request, res: Response, onClose: (watcher: Watcher) => void) {
    this.isChunked = req.httpVersion !== '1.0';
    const headers = { ...HEADERS, Connection: 'close', ...(this.isChunked && { 'Transfer-Encoding': 'chunked' }) };
    this.socket = handOver(req, res, headers);
    this.socket.once('close', () => {
      this.seat?.leave();
      onClose(this);
    });
    this.ping();
  }

  sit(seat: Seat): void {
    this.seat = seat;
    if (this.socket.destroyed) seat.leave();
  }

  tell(message: Message): boolean {
    const { socket } = this;
    if (socket.destroyed || socket.writableEnded) return true; // it has gone, or goes
    if (socket.writableLength > 0) {
      socket.write('', () => this.seat?.catchUp()); // when all before it has been taken
      return false;
    }
    socket.write(message.as(this.isChunked ? forms.chunked : forms.plain));
    return true;
  }

  end(isComplete: boolean): void {
    const { socket } = this;
    if (isComplete) socket.write(this.isChunked ? frame(COMPLETE) : COMPLETE);
    void this.close();
  }

  /** Ends the stream where it is. @returns when that has been sent */
  close(): Promise<void> {
    return new Promise((resolve) => {
      const { socket } = this;
      if (socket.destroyed || socket.writableEnded) return resolve();
      socket.once('close', resolve);
      socket.end(this.isChunked ? LAST_FRAME : '', resolve);
    });
  }

  /** To be called every so often. @param mostStalls so often in a row a reader may have taken nothing of what waits for it */
  look(mostStalls: number): void {
    const { socket } = this;
    if (socket.writableLength === 0) {
      this.taken = -1;
      this.stalls = 0;
      this.ping(); // one that is not taken would only make the connection look alive
      return;
    }
    const taken = socket.bytesWritten - socket.writableLength;
    this.stalls = taken === this.taken ? this.stalls + 1 : 0;
    this.taken = taken;
    if (this.stalls >= mostStalls) socket.destroy();
  }

  private ping(): void {
    if (!this.socket.writableEnded) this.socket.write(this.isChunked ? PING_FRAME : PING);
  }
}
