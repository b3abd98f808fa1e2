/** Checks the targets (RFC 9112, 3.2) and host names in HTTP requests. */
import type { IncomingMessage } from 'node:http';
import { isIPv6 } from 'node:net';
import { quote } from '../../core/errors.js';
import { remember } from '../../core/remembered.js';
import { HttpError } from './http-body.js';

/**
 * Reduces a request's target to its path and query. If the target is a complete URL, the URL's host replaces the Host
 * header.
 */
export function toOriginForm(req: IncomingMessage): void {
  const target = req.url ?? '/';
  if (!/^https?:\/\//i.test(target) || !URL.canParse(target)) return;
  const { host, pathname, search } = new URL(target);
  req.url = pathname + search;
  req.headers.host = host;
}

/**
 * Removes the path prefix under which users reach the gateway, unless a proxy has already removed the prefix.
 * @param prefix the path prefix, such as `/tapes`; can be empty
 */
export function dropPrefix(req: IncomingMessage, prefix: string): void {
  const target = req.url ?? '/';
  const rest = target.slice(prefix.length);
  if (target.startsWith(prefix) && /^([/?]|$)/.test(rest)) req.url = rest.startsWith('/') ? rest : `/${rest}`;
}

export const prefixOf = (url: string | undefined): string => (url ? new URL(url).pathname.replace(/\/$/, '') : '');

const HOST = /^([a-z0-9_.~!$&'()*+,;=%-]+|\[[0-9a-f:.]+\])(:\d{0,5})?$/i;

const isHost = remember((host) => HOST.test(host) && URL.canParse(`http://${host}/`));

/** @throws HttpError 400 if the target or a header is invalid; 501 if the transfer encoding is not supported */
export function checkTarget({ url = '/', headers, rawHeaders }: IncomingMessage): void {
  const { host = '', 'transfer-encoding': coding } = headers;
  if (!url.startsWith('/') && url !== '*')
    throw new HttpError(400, `the target must be a path, or an http or https URL, not ${quote(url)}`);
  // reject a repeated header, because a proxy might use one of its values and the gateway another (RFC 9112, 3.2)
  for (const name of ['Host', 'Authorization']) {
    if (countOf(rawHeaders, name.toLowerCase()) > 1) throw new HttpError(400, `${name} must be sent once`);
  }
  if (coding !== undefined && coding.toLowerCase() !== 'chunked')
    throw new HttpError(501, `Transfer-Encoding must be chunked, not ${quote(coding)}`);
  if (host !== '' && !isHost(host))
    throw new HttpError(400, `Host must be a name or an address, and a port, not ${quote(host)}`);
}

const countOf = (rawHeaders: readonly string[], name: string): number =>
  rawHeaders.filter((text, at) => at % 2 === 0 && text.length === name.length && text.toLowerCase() === name).length;

/** Returns a host name in the form that browsers use, without a port. IPv6 addresses have brackets. */
export const hostnameOf = remember((host): string | undefined => {
  const name = isIPv6(host) ? `[${host}]` : host;
  return isHost(name) ? new URL(`http://${name}/`).hostname.replace(/\.$/, '') : undefined;
});
