/** The body of an answer, in chunks: never more of it in memory than its stream holds. */
import type { IncomingHttpHeaders, IncomingMessage } from 'node:http';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { messageOf } from '../../errors.js';
import { LibraryError } from '../backend.js';
import { SilentServerError } from './exchange.js';

/** What an answer begins with. */
export interface ResponseHead {
  readonly statusCode?: number | undefined;
  readonly statusMessage?: string | undefined;
  readonly headers: IncomingHttpHeaders;
  /** Closes the connection: the body is not read. */
  destroy(): unknown;
}

/** An answer whose body is the reader's. */
export interface Answer {
  response: ResponseHead;
  /** For errors. */
  name: string;
  /**
   * The body, once; whoever stops early closes the connection.
   * @throws LibraryError when it breaks off, SilentServerError when nothing comes, the signal's reason
   */
  read(signal: AbortSignal): AsyncGenerator<Buffer>;
}

interface Body {
  response: IncomingMessage;
  /** For errors. */
  name: string;
  silenceMs: number;
}

/**
 * What has arrived is taken as one chunk: TLS and small packets bring pieces that are dearer to hand on than to join.
 * Whoever stops early closes the connection.
 * @throws LibraryError when the body breaks off, SilentServerError when nothing comes, the signal's reason
 */
export async function* readBody({ response, name, silenceMs }: Body, signal: AbortSignal): AsyncGenerator<Buffer> {
  let failure: unknown;
  let wake = () => {};
  const rouse = () => wake();
  const fail = (error: unknown) => {
    failure ??= error;
    wake();
  };
  const onAbort = () => fail(signal.reason);
  const onError = (error: unknown) =>
    fail(new LibraryError('TRANSIENT', `${name} broke off: ${messageOf(error)}`, { cause: error }));
  const onClose = () => {
    if (!response.complete) onError('the connection was closed');
    wake();
  };
  let isWaiting = false; // how long the reader takes is no silence
  const tellSilence = () => {
    if (isWaiting) fail(new SilentServerError(`${name} sent nothing for ${silenceMs / 1000} s`));
  };
  const timer = setTimeout(tellSilence, silenceMs);
  response.on('readable', rouse).once('end', rouse).on('error', onError).once('close', onClose);
  signal.addEventListener('abort', onAbort);
  if (response.destroyed) onClose();
  try {
    for (;;) {
      if (signal.aborted) throw signal.reason;
      await gather(response);
      if (signal.aborted) throw signal.reason;
      const chunk: Buffer | null = response.read();
      if (chunk !== null) {
        yield chunk;
        continue;
      }
      if (response.readableEnded) return;
      if (failure !== undefined) throw failure;
      timer.refresh();
      isWaiting = true;
      await new Promise<void>((resolve) => {
        wake = resolve;
      });
      isWaiting = false;
    }
  } finally {
    clearTimeout(timer);
    signal.removeEventListener('abort', onAbort);
    if (!response.readableEnded) response.destroy();
  }
}

/** More in one piece would leave the caches of a processor. */
const ENOUGH_BYTES = 128 * 1024;

/**
 * TLS gives what came with one read of a socket record by record, 16 kB each: as long as the next turn brings more, it is waited for, since each
 * chunk costs whoever gets it more than its bytes do.
 */
async function gather(response: IncomingMessage): Promise<void> {
  for (let before = 0; response.readableLength > before && response.readableLength < ENOUGH_BYTES; ) {
    before = response.readableLength;
    await nextTurn();
  }
}

/** What is left of an answer that nobody needs: a short one is read, so that its connection can be used again. */
export async function discard(answer: Answer, signal: AbortSignal): Promise<void> {
  await readText(answer, { maxBytes: 64 * 1024, signal }).catch(() => signal.throwIfAborted());
}

/** @throws LibraryError when it is longer, and what `readBody` throws */
export async function readText(
  answer: Answer,
  { maxBytes, signal }: { maxBytes: number; signal: AbortSignal },
): Promise<string> {
  const chunks: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of answer.read(signal)) {
    bytes += chunk.length;
    if (bytes > maxBytes)
      throw new LibraryError('TRANSIENT', `${answer.name} answers with more than ${maxBytes} bytes`);
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString();
}
