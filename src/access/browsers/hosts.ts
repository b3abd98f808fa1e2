/**
 * For which hosts the gateway answers. A name of somebody else's may lead to this address a moment after its page was
 * loaded (DNS rebinding): for the browser they are of one origin then, and only `Host` tells that it was meant for another.
 */
import type { Request } from 'express';
import { isLoopback } from '../../address-ranges.js';
import type { BrowserConfig } from '../../config.js';
import { quote } from '../../errors.js';
import { HttpError } from '../../http-body.js';
import { hostnameOf } from '../../http-target.js';

export type HostConfig = Pick<BrowserConfig, 'publicUrl' | 'allowedHosts'> & { host: string };

/** @returns a check that throws HttpError 421 for the host of others; ports are not looked at */
export function createHostCheck({ host, publicUrl, allowedHosts }: HostConfig): (req: Request) => void {
  const own = [host, ...allowedHosts, ...(publicUrl ? [new URL(publicUrl).hostname] : [])];
  const known = new Set(own.map(hostnameOf));
  return (req) => {
    const given = req.get('host');
    if (!given) return; // every browser names one
    const name = hostnameOf(given);
    if (isLoopbackName(name) || known.has(name) || name === addressOf(req)) return;
    throw new HttpError(
      421,
      `this gateway is not ${quote(given)}: it goes by the names of PUBLIC_URL and ALLOWED_HOSTS`,
    );
  };
}

/** Names that lead to this host, whoever is asked for them (RFC 6761, 6.3), and addresses, which lead nowhere else. */
function isLoopbackName(name: string | undefined): boolean {
  return name !== undefined && (isLoopback(bare(name)) || name.endsWith('.localhost'));
}

/** The address at which the request came in, as a host; nobody can make a name of it. */
function addressOf({ socket }: Request): string | undefined {
  const address = socket.localAddress?.replace(/^::ffff:(?=\d+\.)/, '');
  return address && hostnameOf(address);
}

const bare = (name: string) => name.replace(/^\[(.*)\]$/, '$1');
