/** Paths of the catalogue and those of the system, which may write them in a form of its own. */
import { quote, TapeError } from '../../errors.js';

/** Both without a slash at the end: what begins with the one here begins with the other there. */
export interface PathPrefixes {
  own: string;
  remote: string;
}

export function readPrefix(text: string): string {
  return normalisePath(text).replace(/^\/$/, '');
}

/** As servers may, too: slashes that follow each other are one, and none is at the end. */
export function normalisePath(path: string): string {
  return path.replace(/\/{2,}/g, '/').replace(/(?<=.)\/$/, '');
}

/**
 * @returns the path that the system knows a file by
 * @throws TapeError PERMANENT when it cannot have one
 */
export function toRemotePath({ own, remote }: PathPrefixes, path: string): string {
  const normal = normalisePath(path);
  if (!normal.startsWith(`${own}/`)) {
    throw new TapeError(
      'PERMANENT',
      `${quote(path)} is not below ${quote(own === '' ? '/' : own)} (pathPrefix), which the library has`,
    );
  }
  // a server may follow them to another file
  if (/\/\.{1,2}(\/|$)/.test(normal))
    throw new TapeError('PERMANENT', `${quote(path)} has a dot for a name, which no path of the library has`);
  if (!normal.isWellFormed()) throw new TapeError('PERMANENT', `${quote(path)} is no text that can be sent`);
  return remote + normal.slice(own.length);
}

/** Where the bytes of a file are. */
export function toUrl(door: URL, remotePath: string): URL {
  const url = new URL(door);
  url.pathname = `${door.pathname.replace(/\/$/, '')}${remotePath.split('/').map(encodeURIComponent).join('/')}`;
  return url;
}
