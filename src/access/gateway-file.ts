/** Notes of this host's gateways, by which commands recognise them: the listening sockets, in DATA_DIR. */
import { randomUUID } from 'node:crypto';
import { mkdir, readdir, readFile, readlink, rename, rm, writeFile } from 'node:fs/promises';
import { isIPv6 } from 'node:net';
import { hostname } from 'node:os';
import path from 'node:path';
import { codeOf } from '../errors.js';
import { readOwnFile } from './operator-token-file.js';

interface Note {
  /** Boot id: socket numbers are valid within one boot. */
  boot: string;
  /** Inodes of the listening sockets; none except on Linux. */
  sockets: string[];
  pid: number;
  /** The hostname, if socket numbers are unknown. */
  host?: string;
}

interface Place {
  host: string;
  port: number;
}

/** Hosts may share a directory, and a host may have several gateways, also on one port at several addresses. */
function gatewayFile(dataDir: string, { host, port }: Place): string {
  return path.join(dataDir, `gateway-${hostname()}-${host.replaceAll(/[^\w.]/g, '_')}-${port}.json`);
}

/** Reads the notes of a port for any address and host name: the host may have been renamed. */
async function readNotes(dataDir: string, port: number): Promise<Note[]> {
  const names = (await readdir(dataDir).catch(() => [])).filter(
    (name) => name.startsWith('gateway-') && name.endsWith(`-${port}.json`),
  );
  const files = await Promise.all(names.map((name) => readOwnFile(path.join(dataDir, name))));
  return files.flatMap((file) => parseNote(file?.text) ?? []);
}

/**
 * Writes the note of a listening gateway, readable only by its user.
 * @returns a function that removes the note, for when it stops listening; a stale note is harmless
 */
export async function noteGateway(dataDir: string, place: Place): Promise<() => Promise<void>> {
  const note: Note = { boot: await readBoot(), sockets: await findOwnSockets(), pid: process.pid, host: hostname() };
  const text = `${JSON.stringify(note)}\n`;
  const file = gatewayFile(dataDir, place);
  await mkdir(dataDir, { recursive: true });
  const fresh = `${file}.${randomUUID()}`; // never writes to a file that another user has created
  try {
    await writeFile(fresh, text, { flag: 'wx', mode: 0o600 });
    await rename(fresh, file);
  } finally {
    await rm(fresh, { force: true });
  }
  return async () => {
    // another gateway may have written its note since, in another network namespace
    if ((await readOwnFile(file))?.text === text) await rm(file, { force: true });
  };
}

/**
 * Returns whether all listeners of a port are gateways with a note. The port alone proves nothing: a tunnel (`ssh -L`)
 * may listen on it. A socket's number is unique while the socket is open.
 * @param sockets of the listeners; undefined if unknown, and then a live process with a note is enough
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
    return undefined; // it does not exist or is damaged
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

/** All sockets of the process: the others do not listen. */
async function findOwnSockets(): Promise<string[]> {
  if (process.platform !== 'linux') return [];
  const descriptors = await readdir('/proc/self/fd');
  const targets = await Promise.all(descriptors.map((fd) => readlink(`/proc/self/fd/${fd}`).catch(() => ''))); // closed by now
  return targets.flatMap((target) => /^socket:\[(\d+)\]$/.exec(target)?.[1] ?? []);
}

/** A listening socket and the system user that owns it. */
interface Listener {
  address: string;
  port: number;
  uid: number;
  /** Inode. */
  socket: string;
}

const LISTEN = '0A';

/**
 * Returns the listeners on a port of this host. Any user may listen on a server's port while the server does not run,
 * and would receive its requests. Only Linux reports this (`/proc/net/tcp`, proc(5)); listeners in other network
 * namespaces are not seen. The result may be outdated at once, if a server has just ended.
 * @param host a loopback address, or `localhost`
 * @returns the listeners that a client may reach; undefined if unknown
 */
export async function findListeners(host: string, port: number): Promise<Listener[] | undefined> {
  if (process.platform !== 'linux') return undefined;
  const listeners = (await Promise.all(['/proc/net/tcp', '/proc/net/tcp6'].map(readListeners))).flat();
  const addresses = host === 'localhost' ? ['127.0.0.1', '::1'] : [host];
  return addresses.flatMap((address) => findMet(listeners, normalize(address), port));
}

/** A listener at the address takes precedence over those at all addresses. */
function findMet(listeners: readonly Listener[], address: string, port: number): Listener[] {
  const here = listeners.filter((listener) => listener.port === port);
  const own = here.filter((listener) => listener.address === address);
  if (own.length > 0) return own;
  const all = isIPv6(address) && !address.startsWith('::ffff:') ? ['::'] : ['0.0.0.0', '::'];
  return here.filter((listener) => all.map(normalize).includes(listener.address));
}

/** Maps IPv4 into IPv6, and normalises each address. */
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

/** 32-bit words in hex, in this machine's byte order; the address itself is in network order. */
function readAddress(hex: string): string {
  const bytes = (hex.match(/.{8}/g) ?? []).flatMap((word) => {
    const inOrder = word.match(/../g) ?? [];
    return isLittleEndian ? inOrder.reverse() : inOrder;
  });
  if (bytes.length === 4) return bytes.map((byte) => Number.parseInt(byte, 16)).join('.');
  return Array.from({ length: 8 }, (_, n) => `${bytes[2 * n]}${bytes[2 * n + 1]}`).join(':');
}

const isLittleEndian = new Uint8Array(new Uint16Array([1]).buffer)[0] === 1;
