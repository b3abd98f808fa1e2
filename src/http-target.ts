/** Where a request goes: the forms of a target that RFC 9112 (3.2) has, and the host. */
import type { IncomingMessage } from 'node:http';
import { isIPv6 } from 'node:net';
import { quote } from './errors.js';
import { HttpError } from './http-body.js';
import { remember } from './remembered.js';

/**
 * The target becomes path and query. A proxy may send a whole URL, which every server must take; its host goes before that
 * of the header.
 */
export function toOriginForm(req: IncomingMessage): void {
  const target = req.url ?? '/';
  if (!/^https?:\/\//i.test(target) || !URL.canParse(target)) return;
  const { host, pathname, search } = new URL(target);
  req.url = pathname + search;
  req.headers.host = host;
}

/**
 * Takes the path prefix away by which users find the gateway. A proxy in front of it may have done so already: what has no
 * prefix stays as it is.
 * @param prefix such as `/tapes`; may be empty
 */
export function dropPrefix(req: IncomingMessage, prefix: string): void {
  const target = req.url ?? '/';
  const rest = target.slice(prefix.length);
  if (target.startsWith(prefix) && /^([/?]|$)/.test(rest)) req.url = rest.startsWith('/') ? rest : `/${rest}`;
}

/** The path prefix of a URL without a slash at its end; empty where it has none. */
export const prefixOf = (url: string | undefined): string => (url ? new URL(url).pathname.replace(/\/$/, '') : '');

/** A name or an address, and a port. */
const HOST = /^([a-z0-9_.~!$&'()*+,;=%-]+|\[[0-9a-f:.]+\])(:\d{0,5})?$/i;

const isHost = remember((host) => HOST.test(host) && URL.canParse(`http://${host}/`));

/** @throws HttpError 400: what makes a URL of the target or the host would fail at one that is none */
export function checkTarget({ url = '/', headers: { host = '' }, rawHeaders }: IncomingMessage): void {
  if (!url.startsWith('/') && url !== '*')
    throw new HttpError(400, `the target must be a path, or a URL of http or https, not ${quote(url)}`);
  // of two, who stands between may have gone by the other one (RFC 9112, 3.2)
  if (rawHeaders.filter(isHostName).length > 1) throw new HttpError(400, 'Host must be there once');
  if (host !== '' && !isHost(host))
    throw new HttpError(400, `Host must be a name or an address, and a port, not ${quote(host)}`);
}

const isHostName = (text: string, at: number) => at % 2 === 0 && text.length === 4 && text.toLowerCase() === 'host';

/** The name or address of a host as browsers write it, without its port: one of IPv6 has brackets. */
export const hostnameOf = remember((host): string | undefined => {
  const name = isIPv6(host) ? `[${host}]` : host;
  return isHost(name) ? new URL(`http://${name}/`).hostname.replace(/\.$/, '') : undefined;
});
