/** Paths as clients of the WLCG Tape REST API write them: those of the URLs by which they read the files. */
import { HttpError } from '../../src/http-body.js';

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

/**
 * Reads the logical path of a URL below the root.
 * @param below what follows the root, percent-encoded
 * @returns with single slashes and none at its end: empty for the root
 * @throws HttpError 400
 */
export function readLogicalPath(below: string): string {
  try {
    return decodeURIComponent(below)
      .replace(/\/{2,}/g, '/')
      .replace(/\/$/, '');
  } catch {
    throw new HttpError(400, `the path is not valid: ${below}`);
  }
}

/** @param prefix of the gateway, before all of its paths */
export function hrefOf(prefix: string, path: string): string {
  return prefix + WEBDAV_ROOT + path.split('/').map(encodeURIComponent).join('/');
}
