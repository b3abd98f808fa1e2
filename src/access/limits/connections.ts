/** Limits of connections, in all and of one address. They leave file descriptors for the database and the drives. */
import { readFileSync } from 'node:fs';
import type { Server } from 'node:http';
import type { Socket } from 'node:net';
import { createRangeTest, normalAddress } from '../../address-ranges.js';
import type { Config } from '../../config.js';
import { addressKey } from '../address-key.js';
import { Shares } from './turns.js';

/** Descriptors of a process beside its connections: 24 to the database, one for each long list, its own, and some for each drive. */
const KEPT_DESCRIPTORS = 100;
const KEPT_FOR_DRIVE = 4;

const LEAST_CONNECTIONS = 16;

/** Returns how many connections may be open. @param descriptors what the process may have open; undefined if that is unknown */
export function countConnections({ limits, drives }: Pick<Config, 'limits' | 'drives'>, descriptors?: number): number {
  const kept = KEPT_DESCRIPTORS + limits.longLists + KEPT_FOR_DRIVE * drives;
  const free = (descriptors ?? Number.POSITIVE_INFINITY) - kept;
  return Math.max(LEAST_CONNECTIONS, Math.min(limits.connections, free));
}

/** Node.js closes connections over the limit of all. One address may have half of them, so that a single client keeps nobody else out. */
export function limitConnections(server: Server, config: Config): void {
  const { limits, access } = config;
  const most = countConnections(config, readDescriptorLimit());
  server.maxConnections = most;
  server.headersTimeout = limits.headerSeconds * 1000;
  server.requestTimeout = limits.requestSeconds * 1000;
  server.keepAliveTimeout = limits.idleSeconds * 1000;
  const shares = new Shares('connections', { all: most, one: Math.floor(most / 2) });
  const isProxy = createRangeTest(access.proxyAddresses);
  server.on('connection', (socket: Socket) => {
    // those of a listed proxy are of all clients behind it
    if (isProxy(normalAddress(socket.remoteAddress ?? ''))) return;
    const give = shares.tryTake(addressKey(socket.remoteAddress));
    if (give) socket.once('close', give);
    else socket.destroy();
  });
}

/** Returns the limit of open files of this process; undefined if it has none, or if the system does not report it. */
function readDescriptorLimit(): number | undefined {
  try {
    const [, soft] = /^Max open files\s+(\d+)/m.exec(readFileSync('/proc/self/limits', 'utf8')) ?? [];
    return soft === undefined ? undefined : Number(soft);
  } catch {
    return undefined;
  }
}
