/**
 * What this process has seen of demands: files that were on disk for one are released without another look, and one of which nothing is left is
 * deleted. It saves calls and is needed for nothing: another process looks by itself.
 */
import type { StageAnswer } from './answers.js';

interface Seen {
  /** Files that did not fail, and were not released: they are on disk, or on their way. */
  rest: Map<string, 'done' | 'waiting'>;
  released: Set<string>;
}

/** Paths of all demands together; 20 MB or so. */
const MAX_PATHS = 100_000;

export class SeenDemands {
  private readonly seen = new Map<string, Seen>();
  private paths = 0;

  /** What the system says of a demand now. */
  note(id: string, answers: ReadonlyMap<string, StageAnswer>): void {
    const released = this.seen.get(id)?.released ?? new Set();
    this.forget(id);
    const rest: Seen['rest'] = new Map();
    for (const [path, { word }] of answers) if (word !== 'failed' && !released.has(path)) rest.set(path, word);
    this.seen.set(id, { rest, released });
    this.paths += rest.size + released.size;
    for (const oldest of this.seen.keys()) {
      if (this.paths <= MAX_PATHS || oldest === id) break;
      this.forget(oldest);
    }
  }

  areReady(id: string, paths: readonly string[]): boolean {
    const rest = this.seen.get(id)?.rest;
    return rest !== undefined && paths.every((path) => rest.get(path) === 'done');
  }

  /** @returns whether nothing is left of the demand, as far as was seen */
  release(id: string, paths: readonly string[]): boolean {
    const seen = this.seen.get(id);
    if (!seen) return false;
    for (const path of paths) if (seen.rest.delete(path)) seen.released.add(path);
    if (seen.rest.size > 0) return false;
    this.forget(id);
    return true;
  }

  private forget(id: string): void {
    const seen = this.seen.get(id);
    if (!seen) return;
    this.paths -= seen.rest.size + seen.released.size;
    this.seen.delete(id);
  }
}
