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
}

/** Hosts may share a folder, and gateways a host. */
function gatewayFile(dataDir: string, port: number): string {
  return path.join(dataDir, `gateway-${hostname()}-${port}.json`);
}

/**
 * For the user alone as whom this process runs; once it listens.
 * @returns takes the note away, for when it listens no more; one that stays says nothing
 */
export async function noteGateway(dataDir: string, port: number): Promise<() => Promise<void>> {
  const note: Note = { boot: await readBoot(), sockets: await findOwnSockets(), pid: process.pid };
  const file = gatewayFile(dataDir, port);
  await mkdir(dataDir, { recursive: true });
  const fresh = `${file}.${randomUUID()}`; // what somebody else has made by its name is not written to
  try {
    await writeFile(fresh, `${JSON.stringify(note)}\n`, { flag: 'wx', mode: 0o600 });
    await rename(fresh, file);
  } finally {
    await rm(fresh, { force: true });
  }
  return () => rm(file, { force: true });
}

/**
 * Is what listens on a port the gateway that was noted there? A port proves nothing: a tunnel of the same user (`ssh -L`), or root's to
 * a container, listens where no gateway does. A socket's number is no other's while it is open.
 * @param sockets of those that listen; undefined where nobody can say, and the noted process need only be there
 */
export async function isNotedGateway(dataDir: string, port: number, sockets: readonly string[] | undefined) {
  const note = parseNote((await readOwnFile(gatewayFile(dataDir, port)))?.text);
  if (!note) return false;
  if (!sockets) return isAlive(note.pid);
  return note.boot === (await readBoot()) && sockets.every((socket) => note.sockets.includes(socket));
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
