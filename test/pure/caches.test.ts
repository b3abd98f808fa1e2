/** Caches of results for short texts, of GraphQL documents, and of memory blocks. */
import { parse } from 'graphql';
import { expect, test } from 'vitest';
import { type CheckedDocument, createDocumentCache } from '../../graphql/server/documents.js';
import { BLOCK_BYTES, cutChunk, giveBack, takeBlock } from '../../src/core/blocks.js';
import { remember } from '../../src/core/remembered.js';
import { Recent } from '../../src/gateway/auth/callers.js';

test('results of short texts are kept, up to a number; long texts and errors are not', () => {
  const asked: string[] = [];
  const lengthOf = remember((text) => {
    asked.push(text);
    if (text === 'bad') throw new Error('no');
    return text === '' ? undefined : text.length;
  });
  const long = 'x'.repeat(301);
  for (let time = 0; time < 2; time++) {
    expect([lengthOf('ab'), lengthOf(''), lengthOf(long)]).toEqual([2, undefined, 301]);
    expect(() => lengthOf('bad')).toThrow('no');
  }
  expect(asked).toEqual(['ab', '', long, 'bad', long, 'bad']);
  for (let n = 0; n < 1000; n++) expect(lengthOf(String(n))).toBe(String(n).length);
  asked.length = 0;
  expect([lengthOf('999'), lengthOf('0'), asked]).toEqual([3, 1, ['0']]);
});

const documentOf = (n: number, length: number): [string, CheckedDocument] => {
  const text = `{ a${n} }`.padEnd(length);
  return [text, { text, document: parse(text), faults: [] }];
};

test('the documents used last are kept, up to a total length, and no very long one', () => {
  const cache = createDocumentCache();
  const documents = Array.from({ length: 30 }, (_, n) => documentOf(n, 5000));
  const [first] = documents;
  if (!first) throw new Error('there is no document');
  for (const [text, document] of documents) {
    cache.set(text, document);
    cache.set(text, document);
    expect(cache.get(first[0])).toBe(first[1]);
  }
  const kept = documents.filter(([text]) => cache.get(text));
  expect(kept).toEqual([first, ...documents.slice(-19)]);
  const [text, document] = documentOf(30, 10_001);
  cache.set(text, document);
  expect(cache.get(text)).toBeUndefined();
});

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
  giveBack(chunk); // the former owner returns the block again
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

test('a load during which the cache is cleared is repeated, and a failed one is not kept', async () => {
  const cache = new Recent<number>(60_000);
  let loads = 0;
  const load = async () => {
    if (++loads === 1) cache.clear();
    if (loads === 3) throw new Error('no');
    return loads;
  };
  expect([await cache.get('a', load), await cache.get('a', load), loads]).toEqual([2, 2, 2]);
  await expect(cache.get('b', load)).rejects.toThrow('no');
  expect(await cache.get('b', load)).toBe(4);
});
