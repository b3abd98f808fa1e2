/** Paths in the WLCG Tape REST API: those of the URLs that clients read files by. */
import { HttpError } from '../../src/gateway/http/http-body.js';

/** URLs of files are this root and the logical path. */
export const WEBDAV_ROOT = '/webdav';

/**
 * Returns the logical path, with single slashes and without a trailing one. A path that begins with the root is a
 * URL's, as gfal2 writes it: removes the root and percent-decodes. The caller checks for paths such as those with `..`.
 */
export function toLogicalPath(given: string): string {
  const path = given.replace(/\/{2,}/g, '/').replace(/(?<=.)\/$/, '');
  if (path === WEBDAV_ROOT) return '/';
  return path.startsWith(`${WEBDAV_ROOT}/`) ? decode(path.slice(WEBDAV_ROOT.length)) : path;
}

/** Invalid percent-encoding stays as it is: some clients do not encode. */
function decode(path: string): string {
  try {
    return decodeURIComponent(path);
  } catch {
    return path;
  }
}

/**
 * Reads the logical path of a URL.
 * @param below the part after the root, percent-encoded
 * @returns with single slashes and without a trailing one: empty for the root
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

/** @param prefix of all paths of the gateway */
export function hrefOf(prefix: string, path: string): string {
  return prefix + WEBDAV_ROOT + path.split('/').map(encodeURIComponent).join('/');
}
