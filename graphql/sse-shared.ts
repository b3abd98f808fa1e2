/**
 * Subscriptions that many have in common: the same document, variables and rights. Each of their events is executed and serialised
 * once, and all are given the same bytes.
 *
 * Who watches is in a run of the operation. Whoever comes begins one, which reads where the reader stands, together with all who come from the
 * same place until it has something to tell; it is then joined to the main one as soon as both have told the same event, or at once where it has
 * told the present state, which has all events up to its id in it.
 */
import { setImmediate as nextTurn } from 'node:timers/promises';
import type { ExecutionResult } from 'graphql';
import type { Begin, Results } from './sse-operations.js';

/** One result, serialised when it is first asked for. */
export class Message {
  readonly eventId: bigint | undefined;
  private readonly result: ExecutionResult;
  private text: string | undefined;
  private readonly forms = new Map<(message: Message) => Buffer, Buffer>();

  constructor(result: ExecutionResult, eventId: bigint | undefined) {
    this.result = result;
    this.eventId = eventId;
  }

  get json(): string {
    this.text ??= JSON.stringify(this.result);
    return this.text;
  }

  /** The bytes that a function makes of it, made once. */
  as(form: (message: Message) => Buffer): Buffer {
    const known = this.forms.get(form) ?? form(this);
    this.forms.set(form, known);
    return known;
  }
}

/** Who is told. */
export interface Listener {
  /** @returns false where it has not taken what it was told before: it wants `catchUp` of its seat called when it has */
  tell(message: Message): boolean;
  /** No more is to come: the operation is complete, or it can only be begun anew, later. */
  end(isComplete: boolean): void;
}

/** The events of a history are told no faster than all take them, but for so long in all where one keeps others waiting. */
const PATIENCE_MS = 2000;

/** Listeners that are told without a pause, which takes some milliseconds. */
const AT_ONCE = 500;

/** One listener in a run. */
export class Seat {
  run: Run;
  /** What it knows: no event up to there is told it. */
  after: bigint | undefined;
  isBehind = false;
  private readonly listener: Listener;

  constructor(run: Run, listener: Listener, after?: bigint) {
    this.run = run;
    this.listener = listener;
    this.after = after;
  }

  /** One that is behind is told the latest state instead, once it has taken what it has. */
  tell(message: Message): void {
    if (this.isBehind || this.knows(message)) return;
    if (this.listener.tell(message)) this.after = message.eventId;
    else this.isBehind = true;
  }

  catchUp(): void {
    this.isBehind = false;
    const { run } = this;
    if (run.latest) this.tell(run.latest);
    if (run.end !== undefined) this.finish(run.end);
    run.wake();
  }

  finish(isComplete: boolean): void {
    if (!this.isBehind) this.listener.end(isComplete);
  }

  leave(): void {
    this.run.leave(this);
  }

  private knows({ eventId }: Message): boolean {
    return eventId !== undefined && this.after !== undefined && eventId <= this.after;
  }
}

class Run {
  readonly seats = new Set<Seat>();
  latest: Message | undefined;
  /** Whether it has ended complete; undefined while it goes on. */
  end: boolean | undefined;
  /** It goes by a view of the database that has events without a number: others are not joined to it, nor it to others. */
  isApart = false;
  /** What it has told last had come before it began. */
  isPast = false;
  private readonly channel: Channel;
  private readonly gone = new AbortController();
  private results: Results | undefined;
  private patienceMs = PATIENCE_MS;
  /** To be called when a listener may have taken what it was told, has gone, or has come, for whom one that reads nothing is not waited for long. */
  wake = () => {};

  constructor(channel: Channel) {
    this.channel = channel;
  }

  async go(begin: Begin, place: string): Promise<void> {
    const results = await begin(place, this.gone.signal);
    this.results = results;
    for (;;) {
      const next = this.gone.signal.aborted ? undefined : await results.next();
      if (this.gone.signal.aborted) return results.stop();
      if (!next || next.isBroken) return this.finish(!next);
      this.isApart ||= next.isApart === true;
      this.isPast = next.isPast === true;
      const message = new Message(next.result, next.eventId);
      const isFirst = this.latest === undefined;
      await this.tell(message);
      if (this.gone.signal.aborted) return results.stop();
      this.channel.arrange(this, isFirst && place === '');
      if (next.isPast) await this.untilTaken();
    }
  }

  join(listener: Listener, after?: bigint): Seat {
    const seat = new Seat(this, listener, after);
    this.seats.add(seat);
    this.wake();
    return seat;
  }

  leave(seat: Seat): void {
    this.seats.delete(seat);
    this.wake();
    if (this.seats.size === 0 && this.end === undefined) this.stop();
  }

  /** Its listeners go on in another one, which tells what comes after its own latest message. */
  moveTo(run: Run): void {
    const seats = [...this.seats];
    this.seats.clear();
    for (const seat of seats) {
      seat.run = run;
      run.seats.add(seat);
      if (run.latest) seat.tell(run.latest);
    }
    run.wake();
    this.stop();
  }

  private stop(): void {
    if (this.gone.signal.aborted) return;
    this.gone.abort();
    this.results?.stop();
    this.channel.remove(this);
  }

  /** Who joins meanwhile is told as well, and what else the process has to do comes in between. */
  private async tell(message: Message): Promise<void> {
    this.latest = message;
    let told = 0;
    for (const seat of this.seats) {
      seat.tell(message);
      if (++told % AT_ONCE === 0) await nextTurn();
    }
  }

  finish(isComplete: boolean): void {
    this.end = isComplete;
    this.channel.remove(this);
    for (const seat of this.seats) seat.finish(isComplete);
  }

  private async untilTaken(): Promise<void> {
    const isWaited = () => [...this.seats].some(({ isBehind }) => isBehind);
    while (isWaited() && !this.gone.signal.aborted && this.patienceMs > 0) {
      const start = performance.now();
      const isAlone = this.seats.size === 1;
      await new Promise<void>((resolve) => {
        const late = isAlone ? undefined : setTimeout(resolve, this.patienceMs);
        this.wake = () => {
          clearTimeout(late);
          resolve();
        };
      });
      if (!isAlone) this.patienceMs -= performance.now() - start;
    }
  }
}

/** All who watch the same. */
class Channel {
  main: Run | undefined;
  private readonly begin: Begin;
  private readonly runs = new Set<Run>();
  /** Those that have told nothing yet, by the places that they begin at. */
  private readonly starting = new Map<string, Run>();
  private readonly onEmpty: () => void;

  constructor(begin: Begin, onEmpty: () => void) {
    this.begin = begin;
    this.onEmpty = onEmpty;
  }

  join(place: string, listener: Listener): Seat {
    const { latest } = this.main ?? {};
    if (
      place !== '' &&
      latest?.eventId !== undefined &&
      this.main?.isApart === false &&
      String(latest.eventId) === place
    ) {
      return this.main.join(listener, latest.eventId);
    }
    return (this.starting.get(place) ?? this.start(place)).join(listener);
  }

  /** To be called when a run has told something. @param isPresent that is the present state, and the first that it has told */
  arrange(run: Run, isPresent: boolean): void {
    for (const [place, each] of this.starting) if (each === run) this.starting.delete(place);
    const { main } = this;
    if (!main || run.isApart || main.isApart) return;
    if (run === main) {
      for (const other of this.runs) if (other !== main && isLevel(other, main)) other.moveTo(main);
    } else if (isLevel(run, main)) {
      run.moveTo(main);
    } else if (isPresent && run.latest?.eventId !== undefined) {
      // one that still tells a history, which may be long, or told to who reads slowly, is joined to this one when it has come as far
      if (main.isPast) this.main = run;
      else run.moveTo(main);
    }
  }

  remove(run: Run): void {
    this.runs.delete(run);
    for (const [place, each] of this.starting) if (each === run) this.starting.delete(place);
    if (this.main === run) [this.main] = this.runs;
    if (this.runs.size === 0) this.onEmpty();
  }

  private start(place: string): Run {
    const run = new Run(this);
    this.runs.add(run);
    this.starting.set(place, run);
    this.main ??= run;
    run.go(this.begin, place).catch(() => run.finish(false));
    return run;
  }
}

/** Both have told the same event last, and so all that comes is the same for both. */
function isLevel(run: Run, main: Run): boolean {
  return !run.isApart && run.latest?.eventId !== undefined && run.latest.eventId === main.latest?.eventId;
}

/** All channels of a gateway, by what those who watch have in common. */
export class SharedOperations {
  private readonly channels = new Map<string, Channel>();

  has(key: string): boolean {
    return this.channels.has(key);
  }

  /**
   * @param key of all that the results depend on
   * @param begin begins the operation, for whoever joins
   */
  join(key: string, place: string, listener: Listener, begin: Begin): Seat {
    const known = this.channels.get(key);
    if (known) return known.join(place, listener);
    const channel: Channel = new Channel(begin, () => {
      if (this.channels.get(key) === channel) this.channels.delete(key); // one that ends late leaves its successor
    });
    this.channels.set(key, channel);
    return channel.join(place, listener);
  }
}
