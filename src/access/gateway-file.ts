/** By what a gateway of this host is known to commands: the very socket on which it listens, noted beside the operator's token. */
import { randomUUID } from 'node:crypto';
import { mkdir, readdir, readFile, readlink, rename, rm, writeFile } from 'node:fs/promises';
import { isIPv6 } from 'node:net';
import { hostname } from 'node:os';
import path from 'node:path';
import { codeOf } from '../errors.js';
import { readOwnFile } from './operator-token-file.js';

interface Note {
  /** Of the machine's start: numbers of sockets are those of one. */
  boot: string;
  /** Numbers (inodes) of the sockets on which the process listens; none but on Linux. */
  sockets: string[];
  pid: number;
  /** Its name, by which its processes are told from those of others where numbers of sockets are not known. */
  host?: string;
}

interface Place {
  host: string;
  port: number;
}

/** Hosts may share a folder, gateways a host, and of one host a port, at an address each. */
function gatewayFile(dataDir: string, { host, port }: Place): string {
  return path.join(dataDir, `gateway-${hostname()}-${host.replaceAll(/[^\w.]/g, '_')}-${port}.json`);
}

/** The notes of a port, of whichever address and host: one may be called otherwise since, and is known by its start. */
async function readNotes(dataDir: string, port: number): Promise<Note[]> {
  const names = (await readdir(dataDir).catch(() => [])).filter(
    (name) => name.startsWith('gateway-') && name.endsWith(`-${port}.json`),
  );
  const files = await Promise.all(names.map((name) => readOwnFile(path.join(dataDir, name))));
  return files.flatMap((file) => parseNote(file?.text) ?? []);
}

/**
 * For the user alone as whom this process runs; once it listens.
 * @returns takes the note away, for when it listens no more; one that stays says nothing
 */
export async function noteGateway(dataDir: string, place: Place): Promise<() => Promise<void>> {
  const note: Note = { boot: await readBoot(), sockets: await findOwnSockets(), pid: process.pid, host: hostname() };
  const text = `${JSON.stringify(note)}\n`;
  const file = gatewayFile(dataDir, place);
  await mkdir(dataDir, { recursive: true });
  const fresh = `${file}.${randomUUID()}`; // what somebody else has made by its name is not written to
  try {
    await writeFile(fresh, text, { flag: 'wx', mode: 0o600 });
    await rename(fresh, file);
  } finally {
    await rm(fresh, { force: true });
  }
  return async () => {
    // another one may have noted itself there since, in a network of its own
    if ((await readOwnFile(file))?.text === text) await rm(file, { force: true });
  };
}

/**
 * Is what listens on a port a gateway that was noted there, or, of several addresses, one each? A port proves nothing: a tunnel of the same user (`ssh -L`), or root's to
 * a container, listens where no gateway does. A socket's number is no other's while it is open.
 * @param sockets of those that listen; undefined where nobody can say, and the noted process need only be there
 */
export async function isNotedGateway(dataDir: string, port: number, sockets: readonly string[] | undefined) {
  const notes = await readNotes(dataDir, port);
  if (!sockets) return notes.some(({ host, pid }) => host === hostname() && isAlive(pid));
  const boot = await readBoot();
  const noted = new Set(notes.flatMap((note) => (note.boot === boot ? note.sockets : [])));
  return notes.length > 0 && sockets.every((socket) => noted.has(socket));
}

function parseNote(text: string | undefined): Note | undefined {
  try {
    const note = JSON.parse(text ?? '');
    return Array.isArray(note?.sockets) && Number.isInteger(note.pid) && note.pid > 0 ? note : undefined;
  } catch {
    return undefined; // there is none, or it was spoilt
  }
}

function isAlive(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch (error) {
    return codeOf(error) === 'EPERM';
  }
}

async function readBoot(): Promise<string> {
  if (process.platform !== 'linux') return '';
  return (await readFile('/proc/sys/kernel/random/boot_id', 'utf8')).trim();
}

/** All of the process: others that it has are no listeners, and nobody comes to them. */
async function findOwnSockets(): Promise<string[]> {
  if (process.platform !== 'linux') return [];
  const descriptors = await readdir('/proc/self/fd');
  const targets = await Promise.all(descriptors.map((fd) => readlink(`/proc/self/fd/${fd}`).catch(() => ''))); // closed by now
  return targets.flatMap((target) => /^socket:\[(\d+)\]$/.exec(target)?.[1] ?? []);
}

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
 * Who listens on a port of this host. Any user may listen where a server is expected and does not run just now, and would be
 * shown what is meant for the server. Linux alone tells (`/proc/net/tcp`, proc(5)); elsewhere nobody can say. Where nothing is seen to listen, as
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
