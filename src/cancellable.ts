/**
 * An async generator that can be ended while it waits: a plain `return()` waits for the pending `next()`. This one
 * aborts a signal first, on which `run` must end its wait.
 */
export function cancellable<T>(run: (signal: AbortSignal) => AsyncGenerator<T>): AsyncGenerator<T> {
  const controller = new AbortController();
  const inner = run(controller.signal);
  const outer: AsyncGenerator<T> = {
    next: () => inner.next(),
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
