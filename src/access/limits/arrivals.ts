/**
 * Those who come for an event stream. After a restart all watchers come back at once, thousands of them, and each costs a millisecond before
 * it waits again; so they are let in some at a time, each address in its turn, and whoever asks for anything else is answered in between. The
 * others wait as they are: their requests are read and looked at no further.
 */
import type { IncomingMessage, ServerResponse } from 'node:http';

/** So many are on their way in, and so many come in before whatever else has come is looked at. */
const AT_ONCE = 16;
/** One that takes longer, as the database may, keeps others waiting no more. */
const PLACE_MS = 250;
/** One whose body is still to come, as it may be for minutes, does even less. */
const BODY_MS = 20;

/** Who comes, and what begins it. */
interface Arrival {
  req: IncomingMessage;
  res: ServerResponse;
  begin(): void;
}

type Line = Set<Arrival>;

const places = new WeakMap<ServerResponse, () => void>();

/** It is a stream now, or is going to be one: the next may come in. */
export function letNextIn(res: ServerResponse): void {
  places.get(res)?.();
}

export class Arrivals {
  /** By address; the first is the next in turn. */
  private readonly lines = new Map<string, Line>();
  private readonly keyOf: (req: IncomingMessage) => string;
  private inside = 0;
  /** Those inside whose places are free from the next turn on. */
  private left = 0;
  private isDue = false;
  private isOpen = false;

  /** @param keyOf names the address that a request comes from */
  constructor(keyOf: (req: IncomingMessage) => string) {
    this.keyOf = keyOf;
  }

  /** Lets in all who wait, and whoever comes, at once: they are to be told that the gateway stops. */
  open(): void {
    this.isOpen = true;
    for (const line of this.lines.values()) for (const { begin } of line) begin();
    this.lines.clear();
  }

  /** Begins what asks for no stream at once, and the others in turn. */
  enter(req: IncomingMessage, res: ServerResponse, begin: () => void): void {
    if (this.isOpen || !/\btext\/event-stream\b/i.test(req.headers.accept ?? '')) begin();
    else if (this.inside < AT_ONCE && this.lines.size === 0) this.admit({ req, res, begin });
    else this.waitInLine({ req, res, begin });
  }

  private waitInLine(arrival: Arrival): void {
    const key = this.keyOf(arrival.req);
    const line: Line = this.lines.get(key) ?? new Set();
    this.lines.set(key, line);
    line.add(arrival);
    arrival.res.once('close', () => {
      if (line.delete(arrival) && line.size === 0 && this.lines.get(key) === line) this.lines.delete(key);
    });
  }

  private admit({ req, res, begin }: Arrival): void {
    this.inside++;
    const leave = () => {
      if (!places.delete(res)) return;
      clearTimeout(late);
      clearTimeout(bodyLate);
      this.left++;
      this.callNext();
    };
    const late = setTimeout(leave, PLACE_MS).unref();
    const bodyLate = setTimeout(() => req.complete || leave(), BODY_MS).unref();
    places.set(res, leave);
    res.once('close', leave);
    begin();
  }

  /** Not at once: what else has come meanwhile goes first. */
  private callNext(): void {
    if (this.isDue) return;
    this.isDue = true;
    setImmediate(() => {
      this.isDue = false;
      this.inside -= this.left;
      this.left = 0;
      while (this.inside < AT_ONCE && this.lines.size > 0) this.admitNext();
    });
  }

  private admitNext(): void {
    for (const [key, line] of this.lines) {
      this.lines.delete(key);
      const [next] = line;
      if (!next) continue;
      line.delete(next);
      if (line.size > 0) this.lines.set(key, line); // behind all others
      this.admit(next);
      return;
    }
  }
}
