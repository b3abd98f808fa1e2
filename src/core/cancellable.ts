/**
 * Returns an async generator whose `return()` takes effect even while the generator waits for an item. The `return()`
 * of a plain generator would wait until the pending `next()` has finished. Calling `return()` aborts the signal passed
 * to `run`, and `run` must then stop waiting.
 * @param onItem called with each item before the consumer receives the item
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
