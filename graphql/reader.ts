/** Whether anybody still waits for an answer: what takes long to be found is looked for only as long. */

/** Where the answer goes, as far as this needs it: a response of Node's. */
export interface Answer {
  destroyed: boolean;
  writableFinished: boolean;
  once(event: 'close', listener: () => void): unknown;
}

const readers = new WeakMap<Answer, AbortSignal>();

/** Aborts when the reader has gone without its answer; never where there is none. One for all fields of an operation. */
export function readerOf({ res }: { res?: Answer }): AbortSignal | undefined {
  if (!res) return undefined;
  const known = readers.get(res);
  if (known) return known;
  const gone = new AbortController();
  const leave = () => {
    if (!res.writableFinished) gone.abort(new Error('the reader has gone'));
  };
  if (res.destroyed) leave();
  else res.once('close', leave);
  readers.set(res, gone.signal);
  return gone.signal;
}
