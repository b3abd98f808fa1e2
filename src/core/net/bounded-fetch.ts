/**
 * `fetch` with time and size limits. Aborting the signal of `fetch` is not enough, because Node.js can ignore the
 * signal while reading the response.
 */

const MAX_BYTES = 1024 * 1024;

const EMPTY = [204, 205, 304];

/**
 * Fetches a URL, and returns the response after reading its whole body.
 * @param options.signal aborts the request, as for `fetch`
 * @throws Error if reading the whole response takes longer than `ms`, or the body is larger than 1 MB
 */
export async function fetchBounded(url: string | URL, options: RequestInit, ms: number): Promise<Response> {
  const end = new AbortController();
  const abort = (reason: unknown) => end.abort(reason);
  const timer = setTimeout(abort, ms, new Error(`no response within ${ms / 1000} s`));
  const { signal } = options;
  const onAbort = () => abort(signal?.reason);
  if (signal?.aborted) onAbort();
  signal?.addEventListener('abort', onAbort);
  const aborted = new Promise<never>((_, reject) => {
    end.signal.addEventListener('abort', () => reject(end.signal.reason), { once: true });
  });
  aborted.catch(() => {}); // prevent an unhandled rejection if `aborted` rejects after the response has arrived
  try {
    end.signal.throwIfAborted();
    const response = await Promise.race([fetch(url, { ...options, signal: end.signal }), aborted]);
    const body = await readBody(response, aborted);
    const { status, statusText, headers } = response;
    const read = new Response(EMPTY.includes(status) ? null : body, { status, statusText, headers });
    return Object.defineProperty(read, 'url', { value: response.url });
  } finally {
    clearTimeout(timer);
    signal?.removeEventListener('abort', onAbort);
  }
}

async function readBody(response: Response, aborted: Promise<never>): Promise<Buffer<ArrayBuffer>> {
  const reader = response.body?.getReader();
  const chunks: Uint8Array[] = [];
  let size = 0;
  try {
    while (reader) {
      const { done, value } = await Promise.race([reader.read(), aborted]);
      if (done) break;
      size += value.length;
      if (size > MAX_BYTES) throw new Error(`the response is larger than ${MAX_BYTES} bytes`);
      chunks.push(value);
    }
    return Buffer.concat(chunks);
  } catch (error) {
    void reader?.cancel(error).catch(() => {}); // canceling the reader closes the connection
    throw error;
  }
}
