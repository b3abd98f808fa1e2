/** The memory library for drives. */
import { expect, test } from 'vitest';
import { createMemoryBackend } from '../../src/tape/memory.js';
import { at, mount, put } from '../support/tape-backend.js';
import { describeWritableBackend } from '../support/tape-backend-writes.js';

describeWritableBackend('memory', () => createMemoryBackend());

const never = new Promise<never>(() => {});

test('an endless mount ends with its signal', async () => {
  const backend = createMemoryBackend();
  backend.onMount = () => never;
  const abort = new AbortController();
  const mounting = backend.mount('V1', 'drive-1', abort.signal);
  const reason = new Error('stop');
  abort.abort(reason);
  expect(await mounting.catch((error: unknown) => error)).toBe(reason);
});

test('an endless read ends with its signal', async () => {
  const backend = createMemoryBackend();
  await put(backend, 'V1', 1n, Buffer.from('a'));
  backend.onRead = () => never;
  const volume = await mount(backend, 'V1');
  const abort = new AbortController();
  const reading = volume.read(at(1n), abort.signal)[Symbol.asyncIterator]().next();
  const reason = new Error('stop');
  abort.abort(reason);
  expect(await reading.catch((error: unknown) => error)).toBe(reason);
});
