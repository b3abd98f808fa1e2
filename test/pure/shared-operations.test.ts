/** Subscriptions that several clients share: a slow reader of past events does not delay the others. */
import { expect, test } from 'vitest';
import type { Begin, Results, Told } from '../../graphql/sse-operations.js';
import { type Listener, type Message, SharedOperations } from '../../graphql/sse-shared.js';
import { waitFor } from '../support/wait.js';

/** Events by their ids, from 1 on. A new reader begins with the newest one, and a reader that resumes with the next one. */
class History {
  newest = 5;
  private wake = () => {};
  private come: Promise<void> = Promise.resolve();

  constructor() {
    this.renew();
  }

  private renew(): void {
    this.come = new Promise((resolve) => {
      this.wake = resolve;
    });
  }

  add(): void {
    this.newest++;
    this.wake();
    this.renew();
  }

  readonly begin: Begin = async (place): Promise<Results> => {
    const start = BigInt(this.newest);
    let last = place === '' ? start - 1n : BigInt(place);
    let isStopped = false;
    const next = async (): Promise<Told | undefined> => {
      while (!isStopped && last >= BigInt(this.newest)) await this.come;
      if (isStopped) return undefined;
      last++;
      return { result: { data: { at: Number(last) } }, eventId: last, isPast: last < start };
    };
    return {
      next,
      stop: () => {
        isStopped = true;
      },
    };
  };
}

/** Accepts so many messages, and then none. */
class Reader implements Listener {
  readonly ids: number[] = [];
  isStuck = false;
  private readonly takes: number;

  constructor(takes = Number.POSITIVE_INFINITY) {
    this.takes = takes;
  }

  tell({ eventId }: Message): boolean {
    this.isStuck = this.ids.length >= this.takes;
    if (!this.isStuck) this.ids.push(Number(eventId));
    return !this.isStuck;
  }

  end(): void {}
}

const cases: [place: string, expected: number[]][] = [
  ['', [5, 6]],
  ['1', [2, 3, 4, 5, 6]],
  ['2', [3, 4, 5, 6]],
];

test.concurrent.each(cases)(
  'a client that resumes after "%s" does not wait for a reader that is stuck',
  async (place, expected) => {
    const history = new History();
    const operations = new SharedOperations();
    const slow = new Reader(1);
    operations.join('key', '0', slow, history.begin);
    await waitFor('the first to be stuck', async () => slow.isStuck);
    const late = new Reader();
    operations.join('key', place, late, history.begin);
    await waitFor('the past events', async () => late.ids.at(-1) === 5);
    history.add();
    await waitFor('the new event', async () => late.ids.at(-1) === 6);
    expect(late.ids).toEqual(expected);
  },
);
