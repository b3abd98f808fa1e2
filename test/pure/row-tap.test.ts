/** Rows that are taken out of the bytes of a connection, in whatever parts they arrive. */
import type { Socket } from 'node:net';
import { PassThrough } from 'node:stream';
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { RowTap } from '../../src/database/row-tap.js';

function message(kind: string, body: Buffer): Buffer {
  const bytes = Buffer.alloc(5 + body.length);
  bytes.write(kind);
  bytes.writeInt32BE(4 + body.length, 1);
  body.copy(bytes, 5);
  return bytes;
}

function row(text: string): Buffer {
  const column = Buffer.from(text);
  const head = Buffer.alloc(6);
  head.writeInt16BE(1);
  head.writeInt32BE(column.length, 2);
  return message('D', Buffer.concat([head, column]));
}

test('rows go to the tap, and all other messages to the driver; after close() the driver gets all', () => {
  const each = fc.oneof(
    fc.string({ unit: 'binary', maxLength: 30 }).map((text) => ({ text })),
    fc.constant({ kind: 'N' }),
  );
  fc.assert(
    fc.property(fc.array(each, { maxLength: 30 }), fc.array(fc.nat(), { maxLength: 10 }), (messages, places) => {
      const stream = new PassThrough();
      const driver: Buffer[] = [];
      stream.on('data', (bytes: Buffer) => driver.push(bytes));
      const taken: Buffer[] = [];
      const tap = new RowTap(stream as unknown as Socket, (rows) => taken.push(Buffer.from(rows)));
      const sent = messages.map((one) => ('text' in one ? row(one.text) : message(one.kind, Buffer.from('a notice'))));
      const bytes = Buffer.concat(sent);
      const cuts = [0, ...places.map((place) => place % (bytes.length + 1)).sort((a, b) => a - b), bytes.length];
      for (const [at, from] of cuts.slice(0, -1).entries())
        stream.emit('data', Buffer.from(bytes.subarray(from, cuts[at + 1])));
      const texts = messages.flatMap((one) => ('text' in one ? [one.text] : []));
      expect(Buffer.concat(taken).toString()).toBe(texts.map((text) => `,${text}`).join(''));
      expect(Buffer.concat(driver)).toEqual(Buffer.concat(sent.filter((_, at) => !('text' in (messages[at] ?? {})))));
      tap.close();
      driver.length = 0;
      stream.emit('data', row('after'));
      expect(driver).toEqual([row('after')]);
    }),
    { numRuns: 25 },
  );
});

test('messages after the rows go to the driver, also when it closes the tap', () => {
  const stream = new PassThrough();
  const driver: Buffer[] = [];
  let tap: RowTap | undefined;
  stream.on('data', (bytes: Buffer) => {
    driver.push(Buffer.from(bytes));
    tap?.close();
  });
  tap = new RowTap(stream as unknown as Socket, () => {});
  const ready = message('Z', Buffer.from('T'));
  stream.emit('data', Buffer.concat([row('a'), ready, ready.subarray(0, 3)]));
  stream.emit('data', Buffer.from(ready.subarray(3)));
  expect(Buffer.concat(driver)).toEqual(Buffer.concat([ready, ready]));
});
