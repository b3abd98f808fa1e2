/** Converts between logical paths and file URLs. The WLCG Tape REST API accepts both. */
import { HttpError } from '../../src/gateway/http/http-body.js';

/** URL path of the WebDAV root directory. The URL path of every file begins with this path. */
export const WEBDAV_ROOT = '/webdav';

/**
 * Returns the logical path for a path from a client, without duplicate or trailing slashes. If the path begins with
 * `WEBDAV_ROOT`, as in gfal2's requests, removes the prefix and decodes percent-encoding. Callers must reject invalid
 * paths, such as paths with `..`.
 */
export function toLogicalPath(given: string): string {
  const path = given.replace(/\/{2,}/g, '/').replace(/(?<=.)\/$/, '');
  if (path === WEBDAV_ROOT) return '/';
  return path.startsWith(`${WEBDAV_ROOT}/`) ? decode(path.slice(WEBDAV_ROOT.length)) : path;
}

/** Decodes a path. Returns a path with invalid percent-encoding unchanged, because some clients do not encode paths. */
function decode(path: string): string {
  try {
    return decodeURIComponent(path);
  } catch {
    return path;
  }
}

/**
 * Returns the logical path in a URL, without duplicate or trailing slashes; empty for the root.
 * @param below the percent-encoded part of the URL's path that follows `WEBDAV_ROOT`
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

/** Returns the URL path of a file or directory. @param prefix the path in the gateway's public URL */
export function hrefOf(prefix: string, path: string): string {
  return prefix + WEBDAV_ROOT + path.split('/').map(encodeURIComponent).join('/');
}
