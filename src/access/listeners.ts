/**
 * Who listens on a port of this host. Any user may listen where a server is expected and does not run just now, and would be
 * shown what is meant for the server.
 */
import { readFile } from 'node:fs/promises';
import { isIPv6 } from 'node:net';
import { codeOf } from '../errors.js';

/** A socket that listens: its address, and the system user whose it is. */
interface Listener {
  address: string;
  port: number;
  uid: number;
  /** Its number (inode). */
  socket: string;
}

const LISTEN = '0A';

/**
 * Who listens there. Linux alone tells (`/proc/net/tcp`, proc(5)); elsewhere nobody can say. Where nothing is seen to listen, as
 * from another network namespace, there is nobody. What is answered may be over in the next moment: whoever listens by then has taken the
 * place of a server that has just ended.
 * @param host a loopback address, or `localhost`
 * @returns whoever may be met, each of whom may answer; undefined where nobody can say
 */
export async function findListeners(host: string, port: number): Promise<Listener[] | undefined> {
  if (process.platform !== 'linux') return undefined;
  const listeners = (await Promise.all(['/proc/net/tcp', '/proc/net/tcp6'].map(readListeners))).flat();
  const addresses = host === 'localhost' ? ['127.0.0.1', '::1'] : [host];
  return addresses.flatMap((address) => findMet(listeners, normalize(address), port));
}

/** Who listens at an address itself goes before who listens at all of them. */
function findMet(listeners: readonly Listener[], address: string, port: number): Listener[] {
  const here = listeners.filter((listener) => listener.port === port);
  const own = here.filter((listener) => listener.address === address);
  if (own.length > 0) return own;
  const all = isIPv6(address) && !address.startsWith('::ffff:') ? ['::'] : ['0.0.0.0', '::'];
  return here.filter((listener) => all.map(normalize).includes(listener.address));
}

/** IPv4 as it is mapped into IPv6; one way to write each address. */
function normalize(address: string): string {
  return new URL(`http://[${isIPv6(address) ? address : `::ffff:${address}`}]`).hostname;
}

async function readListeners(file: string): Promise<Listener[]> {
  const text = await readFile(file, 'utf8').catch((error) => {
    if (codeOf(error) === 'ENOENT') return ''; // a kernel without IPv6
    throw error;
  });
  return text.split('\n').flatMap((line) => {
    const [, local = '', , state, , , , uid = '', , socket = ''] = line.trim().split(/\s+/);
    const [address = '', port = ''] = local.split(':');
    if (state !== LISTEN) return [];
    return [{ address: normalize(readAddress(address)), port: Number.parseInt(port, 16), uid: Number(uid), socket }];
  });
}

/** Words of 32 bits in hex, each as this machine keeps it, the address itself being in network order. */
function readAddress(hex: string): string {
  const bytes = (hex.match(/.{8}/g) ?? []).flatMap((word) => {
    const inOrder = word.match(/../g) ?? [];
    return isLittleEndian ? inOrder.reverse() : inOrder;
  });
  if (bytes.length === 4) return bytes.map((byte) => Number.parseInt(byte, 16)).join('.');
  return Array.from({ length: 8 }, (_, n) => `${bytes[2 * n]}${bytes[2 * n + 1]}`).join(':');
}

const isLittleEndian = new Uint8Array(new Uint16Array([1]).buffer)[0] === 1;
