/** Does something for each of many, some at once. */
import { setMaxListeners } from 'node:events';

/**
 * @param work is given a signal that aborts with the given one, and when the work for another one has failed
 * @throws what the first work that failed has thrown, once all that was begun has ended; the signal's reason where that aborted
 */
export async function eachAtOnce<T>(
  items: readonly T[],
  atOnce: number,
  signal: AbortSignal,
  work: (item: T, signal: AbortSignal) => Promise<void>,
): Promise<void> {
  signal.throwIfAborted();
  const abort = new AbortController();
  setMaxListeners(atOnce + 1, abort.signal);
  const stop = () => abort.abort(signal.reason);
  signal.addEventListener('abort', stop);
  let failed: { error: unknown } | undefined;
  const left = items[Symbol.iterator]();
  const workThrough = async () => {
    for (const item of left) {
      if (abort.signal.aborted) return;
      try {
        await work(item, abort.signal);
      } catch (error) {
        failed ??= { error };
        abort.abort(error);
      }
    }
  };
  try {
    await Promise.all(Array.from({ length: Math.min(atOnce, items.length) }, workThrough));
  } finally {
    signal.removeEventListener('abort', stop);
  }
  signal.throwIfAborted();
  if (failed) throw failed.error;
}
