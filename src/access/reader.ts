/** Whether anybody still waits for an answer: what takes long to be done is done only as long. */
import { setMaxListeners } from 'node:events';
import type { ServerResponse } from 'node:http';

const readers = new WeakMap<ServerResponse, AbortSignal>();

/** Aborts when the reader has gone without its answer. One for all that works for it. */
export function readerOf(res: ServerResponse): AbortSignal {
  const known = readers.get(res);
  if (known) return known;
  const gone = new AbortController();
  setMaxListeners(0, gone.signal); // each field of an operation may wait for a place
  const leave = () => {
    if (!res.writableFinished) gone.abort(new Error('the reader has gone'));
  };
  if (res.destroyed) leave();
  else res.once('close', leave);
  readers.set(res, gone.signal);
  return gone.signal;
}
