/**
 * What bodies may take of the memory, all together and those of one caller: from when their bytes come until the request is
 * answered. Nobody is kept waiting for room: who finds none is told to come again. A body that stands still gives its room back.
 */
import type { ServerResponse } from 'node:http';
import type { Limits } from '../../config-limits.js';
import { type BodyRoom, HttpError } from '../../http-body.js';
import { keepTurn, onceOver } from './turns.js';

const MB = 1024 * 1024;

/** What a body brings at least in the time that is set: less than any line that is in use does. */
const LEAST_BYTES = 64 * 1024;

/** So often in that time it is looked whether it does. */
const LOOKS = 10;

interface Arriving {
  bytes: number;
  /** When it was looked at, and what it had brought by then. */
  since: number;
  before: number;
  refuse: (error: HttpError) => void;
}

export class BodyRooms {
  private readonly limits: Limits;
  private taken = 0;
  private readonly takenBy = new Map<string, number>();
  private readonly arriving = new Set<Arriving>();
  private look: NodeJS.Timeout | undefined;

  constructor(limits: Limits) {
    this.limits = limits;
  }

  /** @param caller as whom the body counts; @param res gives the room back when it is closed */
  enter(caller: string, res: ServerResponse): BodyRoom {
    const body: Arriving = { bytes: 0, since: performance.now(), before: 0, refuse: () => {} };
    let own = 0;
    const give = () => {
      this.add(caller, -own);
      own = 0;
    };
    res.once('close', () => this.leave(body));
    onceOver(res, give);
    this.follow(body);
    return {
      came: (bytes) => {
        body.bytes += bytes;
      },
      take: (bytes) => {
        this.checkRoom(caller, bytes);
        own += bytes;
        this.add(caller, bytes);
      },
      give,
      arrived: () => this.leave(body),
      keep: () => keepTurn(res),
      whenSlow: (refuse) => {
        body.refuse = refuse;
      },
    };
  }

  private checkRoom(caller: string, bytes: number): void {
    const { bodiesMb, callerBodiesMb } = this.limits;
    if (this.taken + bytes > bodiesMb * MB) {
      throw new HttpError(503, 'too many bodies are being read: try again later', { 'Retry-After': '5' });
    }
    if ((this.takenBy.get(caller) ?? 0) + bytes > callerBodiesMb * MB) {
      const message = `your bodies that are being read have more than ${callerBodiesMb} MB: try again later`;
      throw new HttpError(429, message, { 'Retry-After': '5' });
    }
  }

  private add(caller: string, bytes: number): void {
    this.taken += bytes;
    const taken = (this.takenBy.get(caller) ?? 0) + bytes;
    if (taken > 0) this.takenBy.set(caller, taken);
    else this.takenBy.delete(caller);
  }

  private follow(body: Arriving): void {
    this.arriving.add(body);
    this.look ??= setInterval(() => this.dropSlow(), (this.limits.bodySeconds * 1000) / LOOKS).unref();
  }

  private leave(body: Arriving): void {
    this.arriving.delete(body);
    if (this.arriving.size > 0) return;
    clearInterval(this.look);
    this.look = undefined;
  }

  private dropSlow(): void {
    const { bodySeconds } = this.limits;
    const now = performance.now();
    for (const body of this.arriving) {
      if (now - body.since < bodySeconds * 1000) continue;
      if (body.bytes - body.before < LEAST_BYTES) {
        const message = `the body brought less than ${LEAST_BYTES} bytes in ${bodySeconds} s`;
        body.refuse(new HttpError(408, message, { Connection: 'close' }));
      }
      body.since = now;
      body.before = body.bytes;
    }
  }
}
