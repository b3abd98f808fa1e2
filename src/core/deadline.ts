/**
 * Returns a signal that aborts when one of `signals` aborts. At the deadline, the signal aborts with a TimeoutError.
 * The caller must call `end` after its work. `AbortSignal.timeout` is unsuitable, because on Node.js 20 its timer can
 * be garbage-collected while `AbortSignal.any` uses the signal.
 */
export function startDeadline(
  milliseconds: number,
  ...signals: readonly AbortSignal[]
): { signal: AbortSignal; end: () => void } {
  const late = new AbortController();
  const abort = () => late.abort(new DOMException(`it took longer than ${milliseconds / 1000} s`, 'TimeoutError'));
  const timer = setTimeout(abort, milliseconds);
  return { signal: AbortSignal.any([...signals, late.signal]), end: () => clearTimeout(timer) };
}
