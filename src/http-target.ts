/** Where a request goes: the forms of a target that RFC 9112 (3.2) has, and the host. */
import { quote } from './errors.js';
import { HttpError } from './http-body.js';

/** The target as path and query. A proxy may send a whole URL, which every server must take; its host is not looked at. */
export function toOriginForm(target: string): string {
  if (!/^https?:\/\//i.test(target) || !URL.canParse(target)) return target;
  const { pathname, search } = new URL(target);
  return pathname + search;
}

/** A name or an address, and a port. */
const HOST = /^([a-z0-9_.~!$&'()*+,;=%-]+|\[[0-9a-f:.]+\])(:\d{0,5})?$/i;

/** @throws HttpError 400: what makes a URL of the host would fail at one that is none */
export function checkHost(host = ''): void {
  const isHost = host === '' || (HOST.test(host) && URL.canParse(`http://${host}/`));
  if (!isHost) throw new HttpError(400, `Host must be a name or an address, and a port, not ${quote(host)}`);
}
