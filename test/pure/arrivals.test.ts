/** Who comes in when thousands come for an event stream at once. */
import { EventEmitter } from 'node:events';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { expect, test } from 'vitest';
import { Arrivals, letNextIn } from '../../src/access/limits/arrivals.js';
import { waitFor } from '../support/wait.js';

/** As many as come in at once. */
const PLACES = 16;

/** Arrivals, and the names of those who have come in. */
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

test('each address has its turn, however many come from another', async () => {
  const { inside, come } = open();
  const first = Array.from({ length: PLACES }, () => come('crowd'));
  for (let n = 0; n < 100; n++) come('crowd');
  come('one');
  come('crowd', { accept: 'application/json' });
  expect(inside).toEqual(Array(PLACES + 1).fill('crowd'));
  for (const res of first.slice(0, 2)) letNextIn(res);
  await waitFor('two to come in', async () => inside.length === PLACES + 3);
  expect(inside).toContain('one');
});

test('who leaves while it waits, or inside, keeps nobody', async () => {
  const { inside, come } = open();
  const first = Array.from({ length: PLACES }, () => come('a'));
  const second = come('b');
  come('c');
  second.emit('close');
  for (const res of first) res.emit('close');
  await waitFor('the last one to come in', async () => inside.includes('c'));
  expect(inside).not.toContain('b');
});

test('one whose body does not come, or who takes long, keeps its place for a moment only', async () => {
  for (const complete of [false, true]) {
    const { inside, come } = open();
    for (let n = 0; n < PLACES; n++) come('slow', { complete });
    come('next');
    await waitFor('the next one to come in', async () => inside.includes('next'));
  }
});

test('all come in once the gateway stops, to be told so', () => {
  const { arrivals, inside, come } = open();
  for (let n = 0; n < PLACES * 3; n++) come(`from ${n % 5}`);
  arrivals.open();
  come('late');
  expect(inside).toHaveLength(PLACES * 3 + 1);
});
