/** Splits a call for many paths into calls of the size that the server accepts. */
import { LibraryError } from '../drive-library.js';
import type { Problem } from '../http/problems.js';

/** The server refused the call because it is too large (413), or contains something invalid (400). */
export class CallRefusedError extends LibraryError {
  readonly isTooLarge: boolean;

  constructor({ status, text }: Problem) {
    super('TRANSIENT', text);
    this.isTooLarge = status === 413;
  }
}

/**
 * Maximum number of refused calls. This number of calls is enough to isolate two or three invalid paths in a thousand.
 * A server that refuses more calls probably accepts nothing at all.
 */
const MAX_REFUSALS = 32;

export class Parts {
  private limit: number;

  /** @param limit the maximum number of paths per call */
  constructor(limit: number) {
    this.limit = limit;
  }

  /** Current maximum number of paths per call; lower than the initial maximum after refused calls. */
  get size(): number {
    return this.limit;
  }

  /**
   * Sends all paths in as few calls as possible.
   * - A call that is too large is halved. Later calls keep the smaller size.
   * - A call with an invalid path is halved until that path is isolated.
   * @returns the results of `send`, and of `onRefused` for single paths
   * @throws the errors of `send`; CallRefusedError after too many refusals
   */
  async send<T>(
    paths: readonly string[],
    send: (part: readonly string[]) => Promise<T>,
    onRefused: (path: string, error: CallRefusedError) => T,
  ): Promise<T[]> {
    const results: T[] = [];
    let refusals = 0;
    const visit = async (part: readonly string[]): Promise<void> => {
      if (part.length > this.limit) return await visitHalves(part, this.limit);
      try {
        results.push(await send(part));
      } catch (error) {
        if (!(error instanceof CallRefusedError) || ++refusals > MAX_REFUSALS) throw error;
        const [path] = part;
        const half = Math.ceil(part.length / 2);
        if (part.length > 1) {
          if (error.isTooLarge) this.limit = Math.min(this.limit, half);
          return await visitHalves(part, half);
        }
        if (error.isTooLarge || path === undefined) throw error;
        results.push(onRefused(path, error));
      }
    };
    const visitHalves = async (part: readonly string[], size: number) => {
      await visit(part.slice(0, size));
      await visit(part.slice(size));
    };
    if (paths.length > 0) await visit(paths);
    return results;
  }
}
