/** The logical path of a URL below the root, and back. */
import { HttpError } from '../../src/http-body.js';
import { WEBDAV_ROOT } from '../tape/paths.js';

/** @param below what follows the root, percent-encoded @returns with single slashes and none at its end: empty for the root @throws HttpError 400 */
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
