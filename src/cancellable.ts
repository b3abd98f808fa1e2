/**
 * An async generator that waits for something cannot be ended from outside: its `return()` waits in line behind the
 * `next()` that is pending. This one aborts a signal first, on which `run` must end what it waits for.
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
