/**
 * An async generator that can be ended while it waits: a plain `return()` waits for the pending `next()`. This one
 * aborts a signal first, on which `run` must end its wait.
 * @param onItem called with each item before its reader gets it
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
