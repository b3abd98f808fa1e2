/** All clients that watch what others may watch as well, each on a stream of its own: who is told together, and who still reads. */
import type { Request, Response } from 'express';
import { endTurn } from '../src/access/limits/turns.js';
import type { Params } from './http.js';
import { type SharedShape, type Standing, standingOf } from './shared-shape.js';
import type { Begin, Runnable } from './sse-operations.js';
import { SharedOperations } from './sse-shared.js';
import { PING_MS } from './sse-stream.js';
import { Watcher } from './sse-watcher.js';

/** What a client asks for, and as whom. */
interface Wish {
  params: Params;
  /** Undefined where it shares with nobody. */
  rights: string | undefined;
  lastEventId: string | undefined;
}

/** Watchers are looked after one group after another, so that nobody else waits for that. */
const GROUPS = 24;
/** Documents whose shape is known; who makes up others has them looked at again. */
const MOST_SHAPES = 100;

export class Watchers {
  private readonly operations = new SharedOperations();
  private readonly shapes = new Map<string, SharedShape>();
  private readonly groups = Array.from({ length: GROUPS }, () => new Set<Watcher>());
  private readonly take: (req: Request, params: Params) => () => void;
  private readonly mostStalls: number;
  private readonly timer: NodeJS.Timeout;
  private came = 0;
  private looks = 0;

  constructor({ take, readerSeconds }: { take: (req: Request, params: Params) => () => void; readerSeconds: number }) {
    this.take = take;
    this.mostStalls = Math.ceil((readerSeconds * 1000) / PING_MS);
    this.timer = setInterval(() => this.look(), PING_MS / GROUPS).unref();
  }

  /** Somebody has watched by this document. */
  knows(params: Params): boolean {
    return this.shapes.has(nameOf(params));
  }

  /**
   * Where others watch the same already: nothing is parsed or checked again.
   * @returns whether it is told from now on
   * @throws HttpError where it may have no more streams
   */
  join(req: Request, res: Response, wish: Wish): boolean {
    const shape = this.shapes.get(nameOf(wish.params));
    const standing = shape && find(shape, wish);
    if (!standing || !this.operations.has(keyOf(wish, standing))) return false;
    this.seat(req, res, { wish, standing, begin: refuse });
    return true;
  }

  /** The same where it may be the first. */
  begin(req: Request, res: Response, wish: Wish, { shape, share }: Runnable): boolean {
    const standing = shape && find(shape, wish);
    if (!standing) return false;
    const [oldest] = this.shapes.keys();
    if (oldest !== undefined && this.shapes.size >= MOST_SHAPES) this.shapes.delete(oldest);
    this.shapes.set(nameOf(wish.params), shape);
    this.seat(req, res, { wish, standing, begin: share(standing.variables) });
    return true;
  }

  /** Ends all streams where they are. */
  async close(): Promise<void> {
    clearInterval(this.timer);
    await Promise.all(this.groups.flatMap((group) => [...group].map((watcher) => watcher.close())));
  }

  private seat(req: Request, res: Response, given: { wish: Wish; standing: Standing; begin: Begin }): void {
    const give = this.take(req, given.wish.params);
    endTurn(res);
    const group = this.groups[this.came++ % GROUPS] as Set<Watcher>;
    const watcher = new Watcher(req, res, (closed) => {
      group.delete(closed);
      give();
    });
    group.add(watcher);
    const { wish, standing, begin } = given;
    watcher.sit(this.operations.join(keyOf(wish, standing), standing.place, watcher, begin));
  }

  private look(): void {
    const group = this.groups[this.looks++ % GROUPS] ?? [];
    for (const watcher of group) watcher.look(this.mostStalls);
  }
}

const nameOf = ({ query, operationName }: Params) => JSON.stringify([query, operationName ?? null]);

function find(shape: SharedShape, { params, rights, lastEventId }: Wish): Standing | undefined {
  return rights === undefined ? undefined : standingOf(shape, params.variables ?? {}, lastEventId || undefined);
}

/** Of all that the results depend on. */
function keyOf({ params, rights }: Wish, { variables }: Standing): string {
  return JSON.stringify([params.query, params.operationName ?? null, variables, rights]);
}

const refuse: Begin = () => Promise.reject(new Error('there is nothing to begin with'));
