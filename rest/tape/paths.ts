/** Paths as clients of the WLCG Tape REST API write them: those of the URLs by which they read the files. */

/** The bytes of a file are at this, followed by its logical path. */
export const WEBDAV_ROOT = '/webdav';

/**
 * The logical path: with single slashes, and none at its end. Where the root is there, it is the path of a URL, as gfal2 writes it: without the root
 * then, and percent-decoded. What is no logical path all the same, such as one with `..`, is left to whoever checks it.
 */
export function toLogicalPath(given: string): string {
  const path = given.replace(/\/{2,}/g, '/').replace(/(?<=.)\/$/, '');
  if (path === WEBDAV_ROOT) return '/';
  return path.startsWith(`${WEBDAV_ROOT}/`) ? decode(path.slice(WEBDAV_ROOT.length)) : path;
}

/** Percent signs that mean nothing stand for themselves: others write such paths as they are. */
function decode(path: string): string {
  try {
    return decodeURIComponent(path);
  } catch {
    return path;
  }
}
