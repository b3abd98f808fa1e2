/**
 * Returns an async generator that can be ended while it waits. A plain generator's method `return()` waits for the
 * pending call of `next()`. Instead, this generator's `return()` aborts the signal passed to `run`. When the signal
 * aborts, `run` must stop waiting.
 * @param onItem called with each item before the reader receives it
 */
export function cancellable<T>(
  run: (signal: AbortSignal) => AsyncGenerator<T>,
  onItem: (item: T) => void = () => {},
): AsyncGenerator<T> {
  const controller = new AbortController();
  const inner = run(controller.signal);
  const outer: AsyncGenerator<T> = {
    next: async () => {
      const result = await inner.next();
      if (!result.done) onItem(result.value);
      return result;
    },
    return: (value) => {
      controller.abort();
      return inner.return(value);
    },
    throw: (error) => {
      controller.abort();
      return inner.throw(error);
    },
    [Symbol.asyncIterator]: () => outer,
  };
  return outer;
}
