/**
 * Returns a signal that aborts with the first of the given signals, or at the deadline with a DOMException named
 * TimeoutError. The caller must call `end` when the work has ended. Uses its own timer. In Node.js 20, garbage
 * collection may remove the timer of an `AbortSignal.timeout` that is passed to `AbortSignal.any`.
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
