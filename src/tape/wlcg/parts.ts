/** Calls for many paths, as large as the server takes them. */
import { LibraryError } from '../backend.js';
import type { Problem } from '../http/problems.js';

/** The call is too large, or has something in it that the server does not take: 413 or 400. */
export class CallRefusedError extends LibraryError {
  readonly isTooLarge: boolean;

  constructor({ status, text }: Problem) {
    super('TRANSIENT', text);
    this.isTooLarge = status === 413;
  }
}

/** Enough to find two or three paths among a thousand; a server that refuses more than these takes nothing at all. */
const MAX_REFUSALS = 32;

/** Full calls that are taken, one after another, before larger ones are tried; each try that is refused doubles it. */
const TAKEN_BEFORE_MORE = { least: 32, most: 4096 };

export class Parts {
  private readonly most: number;
  private limit: number;
  /** Full calls since the limit has changed last. */
  private taken = 0;
  private takenBeforeMore = TAKEN_BEFORE_MORE.least;

  /** @param limit of paths in a call */
  constructor(limit: number) {
    this.most = limit;
    this.limit = limit;
  }

  /** What one call takes: less than at first where the server has said so. */
  get size(): number {
    return this.limit;
  }

  /**
   * Sends all paths in as few calls as may be. A call that is too large is made in halves, and so are those that follow, until many of them were
   * taken: it may have been a server that had little room just then. One that the server does not take is made in halves down to the path that it does not take.
   * @returns what `send` gave, and `onRefused` for single paths
   * @throws what `send` throws, and its CallRefusedError when it refuses too much
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
        const result = await send(part);
        if (part.length === this.limit) this.noteTaken();
        results.push(result);
      } catch (error) {
        if (!(error instanceof CallRefusedError) || ++refusals > MAX_REFUSALS) throw error;
        const [path] = part;
        const half = Math.ceil(part.length / 2);
        if (part.length > 1) {
          if (error.isTooLarge) this.shrink(half);
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

  private noteTaken(): void {
    this.taken++;
    if (this.limit === this.most || this.taken < this.takenBeforeMore) return;
    this.limit = Math.min(this.limit * 2, this.most);
    this.taken = 0;
    this.takenBeforeMore = Math.min(this.takenBeforeMore * 2, TAKEN_BEFORE_MORE.most);
  }

  private shrink(size: number): void {
    this.limit = Math.min(this.limit, size);
    this.taken = 0;
  }
}
