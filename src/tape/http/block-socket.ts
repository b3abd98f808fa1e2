/**
 * A connection that is read into blocks (src/blocks.ts): heads of answers of HTTP/1.1 as text, and bodies of a known length as chunks. Node.js makes an
 * object for each record of TLS, and memory for each piece of a body that has to be collected: three times the work of the bytes themselves.
 */
import net from 'node:net';
import tls from 'node:tls';
import { BLOCK_BYTES, cutChunk, giveBack, takeBlock } from '../../blocks.js';
import { type Head, parseHead } from './heads.js';

/** Chunks that are ready and not taken: more is left to the kernel, and then to the sender. */
const MOST_READY = 4;

/** So long more is waited for once something has come: a network fills a block in less, or has time. */
const GATHER_MS = 5;

/** Less than a record of TLS is not begun with. */
const LEAST_ROOM = 16 * 1024;

const MOST_HEAD_BYTES = 64 * 1024;

/** Heads that are none of the answer itself, at most. */
const MOST_INTERIM = 10;

const HEAD_END = Buffer.from('\r\n\r\n');

/** The other side is done, or has gone. */
export class ClosedError extends Error {
  constructor() {
    super('the connection was closed');
  }
}

/** As `net.connect` takes it. */
export interface OnRead {
  buffer: () => Buffer;
  callback: (count: number) => boolean;
}

/** Only what the socket calls changes where the next bytes go: it has that part of a block in hand until then. */
export class BlockSocket {
  readonly socket: net.Socket;
  private block = takeBlock();
  /** Of what has come and was not given out: where it begins and ends in the block. */
  private start = 0;
  private end = 0;
  private readonly ready: Buffer[] = [];
  /** Of the body: bytes that have not come yet; undefined while a head is read. */
  private left: number | undefined;
  private head: Head | undefined;
  private interim = 0;
  private isPaused = false;
  private isGathering = false;
  private failure: unknown;
  private wake: () => void = () => {};

  private constructor(open: (onread: OnRead) => net.Socket, left: number | undefined) {
    this.left = left;
    this.socket = open({ buffer: () => this.room(), callback: (count) => this.take(count) });
    this.socket.on('error', (error) => this.fail(error));
    for (const event of ['end', 'close']) this.socket.on(event, () => this.fail(new ClosedError()));
  }

  /** For HTTP. It connects by itself: `connected` tells when. */
  static to(url: URL, options: tls.ConnectionOptions): BlockSocket {
    const host = url.hostname.replace(/^\[(.*)\]$/, '$1');
    const isPlain = url.protocol === 'http:';
    return new BlockSocket((onread) => {
      // types have one buffer only, where Node.js also takes what gives the next one
      const where = {
        host,
        port: Number(url.port || (isPlain ? 80 : 443)),
        onread,
      } as unknown as net.TcpNetConnectOpts;
      const secure = { ...options, ...where, servername: net.isIP(host) > 0 ? '' : host, ALPNProtocols: ['http/1.1'] };
      return (isPlain ? net.connect(where) : tls.connect(secure as tls.ConnectionOptions)).setNoDelay(true);
    }, undefined);
  }

  /** For bytes without any form, up to the end of the connection, which `nextChunk` throws as a ClosedError. */
  static ofBytes(open: (onread: OnRead) => net.Socket): BlockSocket {
    return new BlockSocket(open, Number.POSITIVE_INFINITY);
  }

  /** Has it broken, or was more sent than was asked for? */
  get isBroken(): boolean {
    return this.failure !== undefined || this.end > this.start || this.socket.destroyed;
  }

  /** Is whatever comes taken at once? */
  get isTaking(): boolean {
    return !this.isPaused && !this.socket.destroyed;
  }

  async connected(): Promise<void> {
    const { socket } = this;
    let isConnected = false;
    socket.once(socket instanceof tls.TLSSocket ? 'secureConnect' : 'connect', () => {
      isConnected = true;
      this.wake();
    });
    while (!isConnected) await this.news();
  }

  /** Sends the head of a request; what comes next is the answer to it. */
  ask(head: string): void {
    this.socket.ref();
    this.left = undefined;
    this.head = undefined;
    this.interim = 0;
    this.socket.write(head, 'latin1');
  }

  /** Of the answer, whose body is next. @throws what the connection failed with, or is wrong with the head */
  async readHead(): Promise<Head> {
    while (this.head === undefined) await this.news();
    return this.head;
  }

  /**
   * What has come of the body: a block of it, or what comes in a moment.
   * @param onWait called before it is waited for, and after
   * @returns undefined at the end
   * @throws what the connection failed with
   */
  async nextChunk(onWait: (isWaiting: boolean) => void): Promise<Buffer | undefined> {
    for (;;) {
      const chunk = this.ready.shift();
      if (chunk) {
        this.goOn();
        return chunk;
      }
      if (this.left === 0) return undefined;
      if (this.end === this.start) {
        onWait(true);
        await this.news().finally(() => onWait(false));
      } else {
        await this.gather();
        if (this.ready.length === 0) this.copyOut(this.end - this.start);
      }
    }
  }

  /** Waits for a block to be full, or the end of the body: each chunk costs whoever gets it more than its bytes do. */
  private async gather(): Promise<void> {
    if (this.failure !== undefined) return;
    let timer: NodeJS.Timeout | undefined;
    this.isGathering = true;
    await new Promise<void>((resolve) => {
      this.wake = resolve;
      timer = setTimeout(resolve, GATHER_MS);
    });
    this.isGathering = false;
    clearTimeout(timer);
  }

  /** Whoever waits for something is thrown this. */
  fail(reason: unknown): void {
    this.failure ??= reason;
    this.wake();
  }

  destroy(): void {
    this.socket.destroy();
    for (const chunk of this.ready.splice(0)) giveBack(chunk);
  }

  /** @throws what the connection failed with */
  private async news(): Promise<void> {
    if (this.failure === undefined) {
      await new Promise<void>((resolve) => {
        this.wake = resolve;
      });
    }
    if (this.failure !== undefined) throw this.failure;
  }

  private goOn(): void {
    if (!this.isPaused || this.ready.length > MOST_READY / 2 || this.socket.destroyed) return;
    this.isPaused = false;
    this.socket.resume();
  }

  /** Called by the socket: where the next bytes go. */
  private room(): Buffer {
    if (this.start === this.end) {
      this.start = 0;
      this.end = 0;
    }
    if (BLOCK_BYTES - this.end < LEAST_ROOM) this.moveOn();
    return this.block.subarray(this.end);
  }

  /** Called by the socket: so many bytes are there. @returns false where no more is taken for now */
  private take(count: number): boolean {
    this.end += count;
    if (this.left === undefined) this.takeHead();
    else if (this.left > 0) this.takeBody(count);
    if (!this.isGathering || this.ready.length > 0) this.wake();
    this.isPaused = this.failure !== undefined || this.ready.length >= MOST_READY;
    return !this.isPaused;
  }

  private takeHead(): void {
    try {
      for (let text = this.cutHead(); text !== undefined; text = this.cutHead()) {
        const head = parseHead(text);
        // such as 103: it is none of the answer itself
        if (head.statusCode < 200 && ++this.interim > MOST_INTERIM)
          throw new Error(`it says more than ${MOST_INTERIM} times that it will answer`);
        if (head.statusCode < 200) continue;
        this.head = head;
        this.left = head.length ?? 0;
        if (this.left > 0) this.takeBody(this.end - this.start);
        return;
      }
    } catch (error) {
      this.fail(error);
    }
  }

  private cutHead(): string | undefined {
    const { start } = this;
    const found = this.block.subarray(start, this.end).indexOf(HEAD_END);
    const length = found < 0 ? this.end - start : found;
    if (length > MOST_HEAD_BYTES) throw new Error(`its head is longer than ${MOST_HEAD_BYTES} bytes`);
    if (found < 0) return undefined;
    this.start += found + HEAD_END.length;
    return this.block.toString('latin1', start, start + found);
  }

  /** @param count bytes that have just come */
  private takeBody(count: number): void {
    const wanted = Math.min(count, this.left ?? 0);
    this.left = (this.left ?? 0) - wanted;
    if (this.left === 0) this.cut(this.end - count + wanted);
  }

  /** The block has no room left. */
  private moveOn(): void {
    if (this.left !== undefined && this.left > 0) {
      this.cut(this.end);
      return;
    }
    // the beginning of a head, or what nobody has asked for
    const block = takeBlock();
    this.block.copy(block, 0, this.start, this.end);
    giveBack(this.block);
    this.block = block;
    this.end -= this.start;
    this.start = 0;
  }

  /** Gives out the block up to a place; what is behind it stays. */
  private cut(place: number): void {
    const block = takeBlock();
    this.block.copy(block, 0, place, this.end);
    this.ready.push(cutChunk(this.block, this.start, place));
    this.block = block;
    this.end -= place;
    this.start = 0;
  }

  /** Gives out what has come so far, while the socket has the rest of the block in hand. */
  private copyOut(count: number): void {
    const block = takeBlock();
    this.block.copy(block, 0, this.start, this.start + count);
    this.ready.push(cutChunk(block, 0, count));
    this.start += count;
  }
}
