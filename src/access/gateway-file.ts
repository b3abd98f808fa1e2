/** By what a gateway of this host is known to commands: the very socket on which it listens, noted beside the operator's token. */
import { randomUUID } from 'node:crypto';
import { mkdir, readdir, readFile, readlink, rename, rm, writeFile } from 'node:fs/promises';
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

/** Where a gateway listens. */
interface Place {
  /** An address. */
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
