/** A bound on time beside other reasons to stop. */

/**
 * `AbortSignal.any` with `AbortSignal.timeout` is not it: Node.js 20 holds such a timeout so weakly that it is collected as
 * garbage, and never fires. Here the timer holds it.
 * @param milliseconds from now on
 * @returns a signal that aborts with the first of the signals, or with a DOMException of name TimeoutError; `end` is to be
 *   called when nothing is left to stop
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
