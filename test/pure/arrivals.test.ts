/** Admission control for event-stream connections: how many are admitted at once, and in which order. */
import { EventEmitter } from 'node:events';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { expect, test } from 'vitest';
import { Arrivals, letNextIn } from '../../src/access/limits/arrivals.js';
import { waitFor } from '../support/wait.js';

/** Connections that are admitted at once. */
const PLACES = 16;

/** Returns the admission control, the addresses that were admitted, and a function that connects. */
function open() {
  const arrivals = new Arrivals((req) => (req as IncomingMessage & { address: string }).address);
  const inside: string[] = [];
  const come = (address: string, { accept = 'text/event-stream', complete = true } = {}) => {
    const res = new EventEmitter() as ServerResponse;
    const req = { address, complete, headers: { accept } } as unknown as IncomingMessage;
    arrivals.enter(req, res, async () => inside.push(address));
    return res;
  };
  return { arrivals, inside, come };
}

test('addresses are admitted in turn, however many connections one of them has', async () => {
  const { inside, come } = open();
  const first = Array.from({ length: PLACES }, () => come('crowd'));
  for (let n = 0; n < 100; n++) come('crowd');
  come('one');
  come('crowd', { accept: 'application/json' });
  expect(inside).toEqual(Array(PLACES + 1).fill('crowd'));
  for (const res of first.slice(0, 2)) letNextIn(res);
  await waitFor('two more', async () => inside.length === PLACES + 3);
  expect(inside).toContain('one');
});

test('a connection that closes frees its slot, admitted or waiting', async () => {
  const { inside, come } = open();
  const first = Array.from({ length: PLACES }, () => come('a'));
  const second = come('b');
  come('c');
  second.emit('close');
  for (const res of first) res.emit('close');
  await waitFor('the last one', async () => inside.includes('c'));
  expect(inside).not.toContain('b');
});

test('a connection that is slow, or whose body is missing, loses its slot after a moment', async () => {
  for (const complete of [false, true]) {
    const { inside, come } = open();
    for (let n = 0; n < PLACES; n++) come('slow', { complete });
    come('next');
    await waitFor('the next one', async () => inside.includes('next'));
  }
});

test('a gateway that stops admits all connections, so that it can answer them', () => {
  const { arrivals, inside, come } = open();
  for (let n = 0; n < PLACES * 3; n++) come(`from ${n % 5}`);
  arrivals.open();
  come('late');
  expect(inside).toHaveLength(PLACES * 3 + 1);
});
