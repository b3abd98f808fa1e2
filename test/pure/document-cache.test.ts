/** The cache of parsed GraphQL documents. */
import { type DocumentNode, parse } from 'graphql';
import { expect, test } from 'vitest';
import { DocumentCache } from '../../graphql/document-cache.js';

const documentOf = (n: number, length: number): [string, DocumentNode] => {
  const text = `{ a${n} }`.padEnd(length);
  return [text, parse(text)];
};

test('the documents used last are kept, up to a total length', () => {
  const cache = new DocumentCache();
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
});

test('a very long document is not kept', () => {
  const cache = new DocumentCache();
  const [short, long] = [documentOf(1, 100), documentOf(2, 10_001)];
  for (const [text, document] of [short, long]) cache.set(text, document);
  expect([cache.get(short[0]), cache.get(long[0])]).toEqual([short[1], undefined]);
});
