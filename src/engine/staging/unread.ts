/**
 * Files that a library could not give, though it has them: told apart from a library that cannot be read. A storage element that has lost one of its
 * pools fails for the files of that pool, again and again, and would never come to the others if it were left alone for each.
 */
import type { LibraryError } from '../../tape/backend.js';

/** So many different files, one after the other and with none that came between, are the library's. */
const MOST_FILES = 3;

/** Of one visit to a library. */
export class Unread {
  private readonly paths = new Set<string>();
  private hasRead = false;
  private last: LibraryError | undefined;

  note(path: string, error: LibraryError): void {
    this.paths.add(path);
    this.last = error;
  }

  /** A file has come, or the library has said of it that it does not. */
  noteAnswer(): void {
    this.hasRead = true;
    this.paths.clear();
  }

  /** Why nothing more is to be read now. */
  get failure(): LibraryError | undefined {
    return this.paths.size >= MOST_FILES ? this.last : undefined;
  }

  /** The same, once there is nothing else to read: where nothing has come at all, it may be the library. */
  get outcome(): LibraryError | undefined {
    return this.hasRead ? this.failure : this.last;
  }
}
