/** Paths in the WLCG Tape REST API. They equal the paths in file URLs. */
import { HttpError } from '../../src/gateway/http/http-body.js';

/** The URL path of a file is this root and its logical path. */
export const WEBDAV_ROOT = '/webdav';

/**
 * Returns the logical path, with single slashes and without a trailing one. Removes the root and percent-decodes if the
 * path begins with the root, as gfal2 sends it. The caller rejects paths with `..` and the like.
 */
export function toLogicalPath(given: string): string {
  const path = given.replace(/\/{2,}/g, '/').replace(/(?<=.)\/$/, '');
  if (path === WEBDAV_ROOT) return '/';
  return path.startsWith(`${WEBDAV_ROOT}/`) ? decode(path.slice(WEBDAV_ROOT.length)) : path;
}

/** Leaves invalid percent-encoding unchanged, because some clients do not encode. */
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

/** @param prefix path of the gateway's URL */
export function hrefOf(prefix: string, path: string): string {
  return prefix + WEBDAV_ROOT + path.split('/').map(encodeURIComponent).join('/');
}
