/**
 * Returns a signal that aborts when one of `signals` aborts, or at the deadline with a DOMException named TimeoutError.
 * When the caller's work ends, the caller must call `end` to clear the timer. Uses its own timer, because Node.js 20
 * may garbage-collect the timer of an `AbortSignal.timeout` that is passed to `AbortSignal.any`.
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
