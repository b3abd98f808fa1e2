/** Splits a call for many paths into smaller calls that the server accepts. */
import { LibraryError } from '../drive-library.js';
import type { Problem } from '../http/problems.js';

/** Reports that the server refused a call because the call is too large (413), or contains an invalid path (400). */
export class CallRefusedError extends LibraryError {
  readonly isTooLarge: boolean;

  constructor({ status, text }: Problem) {
    super('TRANSIENT', text);
    this.isTooLarge = status === 413;
  }
}

/** Number of refused calls after which `send` fails: enough to find two or three invalid paths among a thousand. */
const MAX_REFUSALS = 32;

export class Parts {
  private limit: number;

  /** @param limit initial maximum number of paths per call */
  constructor(limit: number) {
    this.limit = limit;
  }

  /** Current maximum number of paths per call. Decreases when the server refuses a call because it is too large. */
  get size(): number {
    return this.limit;
  }

  /**
   * Sends all paths in as few calls as possible. If the server refuses a call, sends the call's paths in two smaller
   * calls of equal size. If the refused call was too large, all later calls are at most half as large. If a path is
   * invalid, the paths are split until a call contains only the invalid path.
   *
   * @returns the result of `send` for each accepted call, and the result of `onRefused` for each invalid path
   * @throws the errors from `send`; CallRefusedError after too many refusals
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
