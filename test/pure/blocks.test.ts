/** Memory blocks that are reused. */
import { expect, test } from 'vitest';
import { BLOCK_BYTES, cutChunk, giveBack, takeBlock } from '../../src/blocks.js';

test('a returned block is the next one taken, once', () => {
  const block = takeBlock();
  const chunk = cutChunk(block, 10, BLOCK_BYTES);
  expect(chunk.buffer).toBe(block.buffer);
  const other = takeBlock();
  expect(other.buffer).not.toBe(block.buffer);
  giveBack(chunk);
  giveBack(chunk);
  const next = takeBlock();
  expect([next.buffer === block.buffer, next.length]).toEqual([true, BLOCK_BYTES]);
  expect(takeBlock().buffer).not.toBe(block.buffer);
});

test('a part of a chunk returns no block: other parts may be in use', () => {
  const chunk = cutChunk(takeBlock(), 0, BLOCK_BYTES);
  giveBack(chunk.subarray(0, 1000));
  expect(takeBlock().buffer).not.toBe(chunk.buffer);
  giveBack(chunk);
  const next = takeBlock();
  expect(next.buffer).toBe(chunk.buffer);
  giveBack(chunk); // by its former owner
  expect(takeBlock().buffer).not.toBe(next.buffer);
});

test('few bytes are copied, and their block is free at once', () => {
  const block = takeBlock();
  block.write('some bytes', 100);
  const chunk = cutChunk(block, 100, 110);
  expect(takeBlock().buffer).toBe(block.buffer);
  expect([chunk.toString(), chunk.buffer === block.buffer]).toEqual(['some bytes', false]);
});

test('a buffer that is no block is not reused', () => {
  const own = Buffer.alloc(BLOCK_BYTES);
  giveBack(own);
  expect(takeBlock().buffer).not.toBe(own.buffer);
});
