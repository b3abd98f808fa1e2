/** Paths as clients of the WLCG Tape REST API write them: those of the URLs by which they read the files. */

/** The bytes of a file are at this, followed by its logical path. */
export const WEBDAV_ROOT = '/webdav';

/**
 * The logical path: without the root, where it is there, with single slashes, and none at its end. What is no logical path all the same, such as one
 * with `..`, is left to whoever checks it.
 */
export function toLogicalPath(given: string): string {
  const path = given.replace(/\/{2,}/g, '/').replace(/(?<=.)\/$/, '');
  if (path === WEBDAV_ROOT) return '/';
  return path.startsWith(`${WEBDAV_ROOT}/`) ? path.slice(WEBDAV_ROOT.length) : path;
}
