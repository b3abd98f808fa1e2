/** GETs whose bodies come in blocks: over bounded connections, which are kept for a while and used again. */
import type tls from 'node:tls';
import { codeOf, messageOf } from '../../errors.js';
import { LibraryError } from '../backend.js';
import { BlockSocket, ClosedError } from './block-socket.js';
import type { Answer } from './body.js';
import { breakOf, nameOf, SilentServerError, type TimeLimits } from './exchange.js';
import type { Head } from './heads.js';

export interface BlockCall {
  url: URL;
  /** As it is sent; nothing of it is changed. */
  target?: string;
  headers: Readonly<Record<string, string>>;
  /** The same object for the same certificates: connections are not shared by others. */
  secure: tls.ConnectionOptions;
  signal: AbortSignal;
}

/** The connections to one server, by one set of certificates. */
interface Lane {
  busy: number;
  /** With what ends each after its rest. */
  idle: { socket: BlockSocket; timer: NodeJS.Timeout }[];
  waiting: (() => void)[];
}

export class BlockCalls {
  private readonly limits: TimeLimits;
  private readonly sockets: number;
  private readonly restMs: number;
  private readonly lanes = new WeakMap<object, Map<string, Lane>>();
  /** Origins that do not say how long their answers are. */
  private readonly unmeasured = new Set<string>();

  /** @param how.sockets connections at once to a server @param how.restMs how long one is kept that rests */
  constructor(how: { limits: TimeLimits; sockets: number; restMs: number }) {
    this.limits = how.limits;
    this.sockets = how.sockets;
    this.restMs = how.restMs;
  }

  /**
   * @returns the answer, whose body is read or which is destroyed; undefined where the server tells no length: it is asked in another way then
   * @throws LibraryError, SilentServerError, the signal's reason
   */
  async get(call: BlockCall): Promise<Answer | undefined> {
    const { origin } = call.url;
    if (this.unmeasured.has(origin)) return undefined;
    const lane = this.laneOf(call);
    await this.enter(lane, call.signal);
    try {
      const { socket, head } = await this.open(lane, call);
      if (head.length !== undefined) return this.answer(lane, socket, call, { ...head, length: head.length });
      socket.destroy();
      if (head.statusCode < 300) this.unmeasured.add(origin); // an error may be told otherwise than bytes are
    } catch (error) {
      leave(lane);
      throw error instanceof LibraryError || call.signal.aborted ? error : breakOf(call.url, error);
    }
    leave(lane);
    return undefined;
  }

  /** Connections that rest are closed from afar at any moment: then a new one is asked. */
  private async open(lane: Lane, call: BlockCall): Promise<{ socket: BlockSocket; head: Head }> {
    const rested = takeIdle(lane);
    if (rested) {
      try {
        return { socket: rested, head: await this.ask(rested, call) };
      } catch (error) {
        rested.destroy();
        const isGone = error instanceof ClosedError || codeOf(error) !== undefined;
        if (call.signal.aborted || !isGone) throw error;
      }
    }
    const socket = await this.connect(call);
    try {
      return { socket, head: await this.ask(socket, call) };
    } catch (error) {
      socket.destroy();
      throw error;
    }
  }

  private laneOf({ secure, url: { origin } }: BlockCall): Lane {
    const lanes = this.lanes.get(secure) ?? new Map<string, Lane>();
    this.lanes.set(secure, lanes);
    const lane = lanes.get(origin) ?? { busy: 0, idle: [], waiting: [] };
    lanes.set(origin, lane);
    return lane;
  }

  private async enter(lane: Lane, signal: AbortSignal): Promise<void> {
    signal.throwIfAborted();
    if (lane.busy < this.sockets) {
      lane.busy++;
      return;
    }
    await new Promise<void>((resolve, reject) => {
      const onAbort = () => {
        lane.waiting.splice(lane.waiting.indexOf(onTurn), 1);
        reject(signal.reason);
      };
      const onTurn = () => {
        signal.removeEventListener('abort', onAbort);
        resolve();
      };
      signal.addEventListener('abort', onAbort, { once: true });
      lane.waiting.push(onTurn);
    });
  }

  private async connect({ url, secure, signal }: BlockCall): Promise<BlockSocket> {
    const socket = BlockSocket.to(url, secure);
    try {
      await this.within(this.limits.connectMs, `${nameOf(url)} took no connection`, { socket, signal }, () =>
        socket.connected(),
      );
      return socket;
    } catch (error) {
      socket.destroy();
      throw error;
    }
  }

  private async ask(socket: BlockSocket, { url, target, headers, signal }: BlockCall): Promise<Head> {
    const place = target ?? `${url.pathname}${url.search}`;
    const fields = Object.entries({ host: url.host, ...headers }).map(([name, value]) => `${name}: ${value}`);
    const lines = [`GET ${place} HTTP/1.1`, ...fields];
    if (lines.some((line) => /[\r\n]/.test(line))) throw new Error('what is to be sent has an end of line in it');
    return await this.within(
      this.limits.answerMs,
      `${nameOf(url)} did not answer GET`,
      { socket, signal },
      async () => {
        socket.ask(`${lines.join('\r\n')}\r\n\r\n`);
        return await socket.readHead();
      },
    );
  }

  private async within<T>(
    ms: number,
    what: string,
    { socket, signal }: { socket: BlockSocket; signal: AbortSignal },
    work: () => Promise<T>,
  ): Promise<T> {
    const timer = setTimeout(() => socket.fail(new SilentServerError(`${what} within ${ms / 1000} s`)), ms);
    const onAbort = () => socket.fail(signal.reason);
    signal.addEventListener('abort', onAbort);
    if (signal.aborted) onAbort();
    try {
      return await work();
    } finally {
      clearTimeout(timer);
      signal.removeEventListener('abort', onAbort);
    }
  }

  private answer(lane: Lane, socket: BlockSocket, { url }: BlockCall, head: Head & { length: number }): Answer {
    const name = nameOf(url);
    let isOver = false;
    const end = (isWhole: boolean) => {
      if (isOver) return;
      isOver = true;
      if (isWhole && head.isKept && !socket.isBroken) this.keep(lane, socket);
      else socket.destroy();
      leave(lane);
    };
    return {
      response: { ...head, destroy: () => end(false) },
      name,
      read: (signal) => readBlocks(socket, { name, silenceMs: this.limits.silenceMs, end }, signal),
    };
  }

  private keep(lane: Lane, socket: BlockSocket): void {
    const timer = setTimeout(() => {
      lane.idle = lane.idle.filter((entry) => entry.socket !== socket);
      socket.destroy();
    }, this.restMs);
    timer.unref();
    socket.socket.unref();
    lane.idle.push({ socket, timer });
  }
}

/** The place of one that is over goes to who has waited longest. */
function leave(lane: Lane): void {
  const next = lane.waiting.shift();
  if (next) next();
  else lane.busy--;
}

/** The one that has rested for the shortest time. */
function takeIdle(lane: Lane): BlockSocket | undefined {
  for (let entry = lane.idle.pop(); entry; entry = lane.idle.pop()) {
    clearTimeout(entry.timer);
    if (!entry.socket.isBroken) return entry.socket;
    entry.socket.destroy();
  }
  return undefined;
}

/** @throws LibraryError when the body breaks off, SilentServerError when nothing comes, the signal's reason */
async function* readBlocks(
  socket: BlockSocket,
  { name, silenceMs, end }: { name: string; silenceMs: number; end: (isWhole: boolean) => void },
  signal: AbortSignal,
): AsyncGenerator<Buffer> {
  let isWaiting = false; // how long the reader takes is no silence
  const tellSilence = () => {
    if (isWaiting) socket.fail(new SilentServerError(`${name} sent nothing for ${silenceMs / 1000} s`));
  };
  const timer = setTimeout(tellSilence, silenceMs);
  const onWait = (waits: boolean) => {
    isWaiting = waits;
    if (waits) timer.refresh();
  };
  const onAbort = () => socket.fail(signal.reason);
  signal.addEventListener('abort', onAbort);
  let isWhole = false;
  try {
    for (;;) {
      signal.throwIfAborted();
      const chunk = await socket.nextChunk(onWait);
      signal.throwIfAborted();
      if (!chunk) break;
      yield chunk;
    }
    isWhole = true;
  } catch (error) {
    if (signal.aborted) throw signal.reason;
    if (error instanceof LibraryError) throw error;
    throw new LibraryError('TRANSIENT', `${name} broke off: ${messageOf(error)}`, { cause: error });
  } finally {
    clearTimeout(timer);
    signal.removeEventListener('abort', onAbort);
    end(isWhole);
  }
}
