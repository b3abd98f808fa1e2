/** Converts between logical paths and paths in file URLs, which the WLCG Tape REST API also accepts. */
import { HttpError } from '../../src/gateway/http/http-body.js';

/** The start of the path in every file URL, before the file's logical path. */
export const WEBDAV_ROOT = '/webdav';

/**
 * Returns the logical path for a client's path, with single slashes and without a trailing slash. If the client's path
 * begins with `WEBDAV_ROOT`, as in gfal2's requests, removes the prefix and decodes percent-encoding. The caller
 * rejects invalid paths, such as paths with `..`.
 */
export function toLogicalPath(given: string): string {
  const path = given.replace(/\/{2,}/g, '/').replace(/(?<=.)\/$/, '');
  if (path === WEBDAV_ROOT) return '/';
  return path.startsWith(`${WEBDAV_ROOT}/`) ? decode(path.slice(WEBDAV_ROOT.length)) : path;
}

/** Decodes a path. Invalid percent-encoding stays unchanged, because some clients do not encode paths. */
function decode(path: string): string {
  try {
    return decodeURIComponent(path);
  } catch {
    return path;
  }
}

/**
 * Returns a URL's logical path, with single slashes and without a trailing slash; empty for the root.
 * @param below percent-encoded part of the URL after the root
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

/** Returns the path in a file's or directory's URL. @param prefix path of the gateway's URL */
export function hrefOf(prefix: string, path: string): string {
  return prefix + WEBDAV_ROOT + path.split('/').map(encodeURIComponent).join('/');
}
