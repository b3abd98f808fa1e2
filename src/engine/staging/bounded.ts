/** Calls of staging libraries, which are bounded in time, whatever the library does about its signal. */
import { LibraryError } from '../../tape/backend.js';

/**
 * @param call is given a signal that aborts with `signal`, and when it has taken too long
 * @throws what the call throws; LibraryError when it has taken too long; the reason of `signal`
 */
export async function within<T>(
  { seconds, signal, what }: { seconds: number; signal: AbortSignal; what: string },
  call: (signal: AbortSignal) => Promise<T>,
): Promise<T> {
  signal.throwIfAborted();
  const over = new AbortController();
  let end: (reason: unknown) => void = () => {};
  const ended = new Promise<never>((_resolve, reject) => {
    end = (reason) => {
      reject(reason);
      over.abort(reason);
    };
  });
  ended.catch(() => {}); // nobody may wait for it any more
  const onAbort = () => end(signal.reason);
  const tooLong = () => end(new LibraryError('TRANSIENT', `${what} has not ended in ${seconds} s`));
  const timer = setTimeout(tooLong, seconds * 1000);
  signal.addEventListener('abort', onAbort, { once: true });
  try {
    const called = call(over.signal);
    called.catch(() => {}); // where it is given up its end is nobody's
    return await Promise.race([called, ended]);
  } finally {
    clearTimeout(timer);
    signal.removeEventListener('abort', onAbort);
  }
}
