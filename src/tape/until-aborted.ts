/**
 * Waits for `work`, but only until the signal aborts. Returns the result of `work`.
 * @throws the error of `work`, or the signal's reason if the signal aborts first
 */
export async function untilAborted<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  let onAbort = () => {};
  const aborted = new Promise<never>((_resolve, reject) => {
    onAbort = () => reject(signal.reason);
    if (signal.aborted) onAbort();
    else signal.addEventListener('abort', onAbort);
  });
  try {
    return await Promise.race([aborted, work]);
  } finally {
    signal.removeEventListener('abort', onAbort);
  }
}
