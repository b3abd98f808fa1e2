/**
 * Checks which user listens on a local port before a command sends a token to that port. While the gateway is down, any
 * local user can listen on the gateway's port.
 */
import { lookup } from 'node:dns/promises';
import { readFileSync, statSync } from 'node:fs';
import type { Environment } from '../../core/environment.js';
import { isOfThisHost, normalAddress } from '../../core/net/address-ranges.js';
import { bareHost } from '../../core/net/issuer-urls.js';
import { CommandError } from '../terminal/failure.js';

const LISTEN = '0A';

/**
 * Checks which user listens at a URL. Does not check URLs with TLS, or URLs on other hosts.
 * @throws CommandError if the listening user is not root, the caller, the user `tapegate` or the owner of DATA_DIR
 */
export async function checkListener(url: string, env: Environment): Promise<void> {
  const { protocol, hostname, port } = new URL(url);
  if (protocol !== 'http:') return;
  // ignore a failed lookup of the host name, because the command's own connection to the host will fail, too
  const found = await lookup(bareHost(hostname), { all: true }).catch(() => []);
  const own = found.map(({ address }) => LOOPBACK[address] ?? normalAddress(address)).filter(isOfThisHost);
  const listeners = own.flatMap((address) => readListeners(Number(port || 80), address));
  const other = listeners.find((uid) => !isExpected(uid, env));
  if (other === undefined) return;
  throw new CommandError(
    `no token was sent to ${url}: the program that listens there runs as user id ${other}, which is not trusted; expected your own user, root, the user tapegate or the owner of DATA_DIR; if you trust this program, use https, or set DATA_DIR to the gateway's data directory`,
  );
}

function isExpected(uid: number, { DATA_DIR }: Environment): boolean {
  return uid === 0 || uid === process.getuid?.() || uid === ownerOf(DATA_DIR) || uid === findAccount('tapegate');
}

function ownerOf(dir: string | undefined): number | undefined {
  return dir ? statSync(dir, { throwIfNoEntry: false })?.uid : undefined;
}

/** Returns a user's id from /etc/passwd, without asking a directory service, which could take seconds. */
function findAccount(name: string): number | undefined {
  const [, uid] = new RegExp(`^${name}:[^:]*:(\\d+):`, 'm').exec(tryRead('/etc/passwd')) ?? [];
  return uid === undefined ? undefined : Number(uid);
}

/**
 * Returns the ids of the users whose processes listen on a port of `host`. On systems other than Linux, returns an
 * empty list.
 */
function readListeners(port: number, host: string): number[] {
  const lines = [...tryRead('/proc/net/tcp').split('\n'), ...tryRead('/proc/net/tcp6').split('\n')];
  return lines.flatMap((line) => {
    const [, local = '', , state, , , , uid] = line.trim().split(/\s+/);
    const [address = '', ownPort = ''] = local.split(':');
    if (state !== LISTEN || Number.parseInt(ownPort, 16) !== port) return [];
    return accepts(readAddress(address), host) ? [Number(uid)] : [];
  });
}

const LOOPBACK: Record<string, string> = { '0.0.0.0': '127.0.0.1', '::': '::1' };

const accepts = (address: string, host: string): boolean => address in LOOPBACK || address === host;

/** Converts a hexadecimal address from /proc/net. Assumes a little-endian processor. */
function readAddress(hex: string): string {
  const bytes = (hex.match(/.{8}/g) ?? []).flatMap((word) => (word.match(/../g) ?? []).reverse());
  if (bytes.length === 4) return bytes.map((byte) => Number.parseInt(byte, 16)).join('.');
  const groups = bytes.join('').match(/.{4}/g) ?? [];
  const mapped = /^0{20}ffff(.{8})$/i.exec(bytes.join(''));
  if (mapped) return (mapped[1]?.match(/../g) ?? []).map((byte) => Number.parseInt(byte, 16)).join('.');
  return normalAddress(new URL(`http://[${groups.join(':')}]/`).hostname.slice(1, -1));
}

function tryRead(file: string): string {
  try {
    return readFileSync(file, 'utf8');
  } catch {
    return '';
  }
}
