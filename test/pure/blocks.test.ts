/** Memory that is used again. */
import { expect, test } from 'vitest';
import { BLOCK_BYTES, cutChunk, giveBack, takeBlock } from '../../src/blocks.js';

test('a block that was given back is the next one that is taken, and no other owner has it', () => {
  const block = takeBlock();
  const chunk = cutChunk(block, 10, BLOCK_BYTES);
  expect(chunk.buffer).toBe(block.buffer);
  const other = takeBlock();
  expect(other.buffer).not.toBe(block.buffer);
  giveBack(chunk);
  giveBack(chunk); // is of no block any more
  const next = takeBlock();
  expect([next.buffer === block.buffer, next.length]).toEqual([true, BLOCK_BYTES]);
  expect(takeBlock().buffer).not.toBe(block.buffer);
});

test('what somebody has cut a chunk into gives nothing back, since the other pieces may be in use', () => {
  const chunk = cutChunk(takeBlock(), 0, BLOCK_BYTES);
  giveBack(chunk.subarray(0, 1000));
  expect(takeBlock().buffer).not.toBe(chunk.buffer);
  giveBack(chunk);
  const next = takeBlock();
  expect(next.buffer).toBe(chunk.buffer);
  giveBack(chunk); // by whoever had it before
  expect(takeBlock().buffer).not.toBe(next.buffer);
});

test('few bytes are copied out of their block, which is free at once', () => {
  const block = takeBlock();
  block.write('some bytes', 100);
  const chunk = cutChunk(block, 100, 110);
  expect(takeBlock().buffer).toBe(block.buffer);
  expect([chunk.toString(), chunk.buffer === block.buffer]).toEqual(['some bytes', false]);
});

test('what is of no block is left alone', () => {
  const own = Buffer.alloc(BLOCK_BYTES);
  giveBack(own);
  expect(takeBlock().buffer).not.toBe(own.buffer);
});
