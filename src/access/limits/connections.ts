/**
 * Connections, all together and those of one address. Who comes beyond that is told so, as long as a few more are left for that;
 * descriptors that the engine and the database need are never given to connections.
 */
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import type { IncomingMessage, Server } from 'node:http';
import type { Socket } from 'node:net';
import { createRangeTest, normalAddress } from '../../address-ranges.js';
import type { Config } from '../../config.js';
import { HttpError } from '../../http-body.js';
import { addressKey } from '../address-key.js';

/** What a process has open beside connections: 24 to the database and one for each long list, its own, and some for each drive. */
const KEPT_DESCRIPTORS = 84;
const KEPT_FOR_DRIVE = 4;

/** So many are let in beyond a limit, in all and of an address, to be told of it. */
const SURPLUS = 32;

/** One of those that asks nothing is ended after this. */
const SURPLUS_MS = 5000;

const LEAST_CONNECTIONS = 16;

export class Connections {
  /** What may be open at once. */
  readonly most: number;
  private readonly mostOfOne: number;
  private readonly isProxy: (address: string) => boolean;
  private readonly seconds: Config['limits'];
  private readonly open = new Map<string, number>();
  private count = 0;
  private readonly refused = new WeakMap<Socket, HttpError>();

  /** @param descriptors what the process may have open; undefined where nothing is known of that */
  constructor({ limits, drives, access }: Config, descriptors = readDescriptorLimit()) {
    const kept = KEPT_DESCRIPTORS + limits.longLists + KEPT_FOR_DRIVE * drives;
    const free = (descriptors ?? Number.POSITIVE_INFINITY) - kept - SURPLUS;
    this.most = Math.max(LEAST_CONNECTIONS, Math.min(limits.connections, free));
    // where there are few, too, one address leaves some for the others
    this.mostOfOne = Math.min(limits.callerConnections, Math.floor(this.most / 2));
    this.seconds = limits;
    this.isProxy = createRangeTest(access.proxyAddresses);
  }

  watch(server: Server): void {
    server.maxConnections = this.most + SURPLUS;
    server.headersTimeout = this.seconds.headerSeconds * 1000;
    server.keepAliveTimeout = this.seconds.idleSeconds * 1000;
    // what is said in TLS cannot be told before it is
    const isPlain = !('setSecureContext' in server);
    server.on('connection', (socket: Socket) => this.enter(socket, { server, isPlain }));
  }

  /** @throws HttpError where its connection is one too many */
  check(req: IncomingMessage): void {
    const error = this.refused.get(req.socket);
    if (error) throw error;
  }

  private enter(socket: Socket, { server, isPlain }: { server: Server; isPlain: boolean }): void {
    const key = addressKey(socket.remoteAddress);
    const shared = (this.open.get(key) ?? 0) + 1;
    this.open.set(key, shared);
    // those of a proxy that is listed are of all whom it speaks for
    const own = this.isProxy(normalAddress(socket.remoteAddress ?? '')) ? 1 : shared;
    this.count++;
    socket.once('close', () => {
      this.count--;
      const left = (this.open.get(key) ?? 0) - 1;
      if (left > 0) this.open.set(key, left);
      else this.open.delete(key);
    });
    if (own <= this.mostOfOne && this.count <= this.most) return;
    if (own <= this.mostOfOne) server.closeIdleConnections();
    if (!isPlain || own > this.mostOfOne + SURPLUS) socket.destroy();
    else if (own > this.mostOfOne) this.refuse(socket, 429, `you have more than ${this.mostOfOne} connections`);
    else this.refuse(socket, 503, 'too many connections are open');
  }

  private refuse(socket: Socket, status: number, problem: string): void {
    const headers = { 'Retry-After': '5', Connection: 'close' };
    this.refused.set(socket, new HttpError(status, `${problem}: try again later`, headers));
    const timer = setTimeout(() => socket.destroy(), SURPLUS_MS).unref();
    socket.once('close', () => clearTimeout(timer));
  }
}

/** Files, sockets and pipes that this process may have open; undefined where the system has no such limit. */
function readDescriptorLimit(): number | undefined {
  try {
    return parseLimit(/^Max open files\s+(\S+)/m.exec(readFileSync('/proc/self/limits', 'utf8'))?.[1]);
  } catch {
    return parseLimit(execFileSync('sh', ['-c', 'ulimit -n'], { encoding: 'utf8' }).trim());
  }
}

const parseLimit = (text: string | undefined) => (/^\d+$/.test(text ?? '') ? Number(text) : undefined);
