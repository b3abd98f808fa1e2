/**
 * Node.js 20 may collect the timeout of `AbortSignal.any` with `AbortSignal.timeout` as garbage, so it never fires.
 * Here the timer keeps it.
 * @returns a signal that aborts with the first of the signals, or with a DOMException named TimeoutError; call `end`
 * when nothing is left to stop
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
