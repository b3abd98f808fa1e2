/** Inputs below HTTP: header oddities, two lengths, broken chunks, targets of other forms, and bytes that are no request. */
import fc, { type Arbitrary } from 'fast-check';
import type { RawInput } from './input.js';
import { choose, oddText, pick } from './texts.js';

const latin = (text: Arbitrary<string>): Arbitrary<string> =>
  text.map((value) => Buffer.from(value).toString('latin1'));
const odd = latin(oddText);

const method = choose(
  [6, pick('GET', 'POST', 'PUT', 'HEAD')],
  [1, pick('get', 'GETT', '', 'CONNECT', 'PRI', 'M-SEARCH')],
  [1, odd],
);
const target = choose(
  [
    5,
    pick('/tape_control/api/v1/requests', '/tape_control/api/v1/files?match=f001', '/graphql', '/graphql/stream', '/'),
  ],
  [
    2,
    pick(
      '*',
      'http://[',
      'http://127.0.0.1/tape_control/api/v1/requests',
      'HTTP://x:y@z/graphql?query={',
      'localhost:80',
      '/a b',
      '//a//',
      '/?',
    ),
  ],
  [2, odd.map((text) => `/${text}`)],
);
const version = choose([9, pick('HTTP/1.1')], [1, pick('HTTP/1.0', 'HTTP/2.0', 'HTTP/9', 'http/1.1', '')]);

const line: Arbitrary<string> = choose(
  [4, pick('Accept: */*', 'Content-Type: application/json', 'Accept: text/event-stream')],
  [
    2,
    pick(
      'Content-Length: 2',
      'Content-Length: 99',
      'Content-Length: -1',
      'Content-Length: 2, 2',
      'Content-Length: 1e1',
    ),
  ],
  [
    2,
    pick(
      'Transfer-Encoding: chunked',
      'Transfer-Encoding: gzip, chunked',
      'Transfer-Encoding: x',
      'Transfer-Encoding:\tchunked',
    ),
  ],
  [
    2,
    pick(
      'Connection: keep-alive',
      'Connection: upgrade',
      'Upgrade: websocket',
      'Upgrade: h2c',
      'Expect: 100-continue',
      'Expect: x',
      'TE: trailers',
    ),
  ],
  [
    2,
    pick(
      ' folded',
      'NoColon',
      ': empty',
      'A B: c',
      'Accept\0: x',
      'X: \u0001',
      'X: \u00ff',
      `X: ${'y'.repeat(20_000)}`,
      'X-A: b'.repeat(50),
    ),
  ],
  [
    1,
    pick(
      'Last-Event-ID: x',
      'Last-Event-ID: 1',
      'X-GraphQL-Event-Stream-Token: x',
      'Forwarded: for=x',
      'Origin: http://127.0.0.1',
    ),
  ],
  [
    1,
    fc
      .tuple(pick('Accept', 'Content-Type', 'Content-Encoding', 'Cookie', 'X'), odd)
      .map(([name, value]) => `${name}: ${value}`),
  ],
);
const host = choose(
  [12, pick('Host: 127.0.0.1', 'Host: localhost')],
  [1, pick('Host:', 'Host: a b', 'Host: [::1', 'host: x\r\nHost: y', 'X: 1')],
);
const body = choose(
  [
    4,
    pick(
      '',
      '{}',
      '[{"quota":"ample","patterns":"f001"}]',
      '2\r\n{}\r\n0\r\n\r\n',
      'zz\r\n',
      '2\r\n{}\r\n',
      'fffffffffffffffff\r\n',
    ),
  ],
  [
    2,
    pick(
      `1;${'x'.repeat(300)}\r\na\r\n0\r\n\r\n`,
      '0\r\nTrailer: x\r\n\r\n',
      '{"query":"{__typename}"}',
      'GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n',
    ),
  ],
  [1, odd],
);

const request: Arbitrary<string[]> = fc
  .tuple(method, target, version, host, fc.array(line, { maxLength: 4 }), body, fc.nat(3))
  .map(([verb, at, spoken, named, lines, content, split]) => {
    const head = `${[`${verb} ${at} ${spoken}`, named, ...lines].join('\r\n')}\r\n\r\n`;
    return split === 0 ? [head.slice(0, 20), head.slice(20), content] : [head + content];
  });

export const rawInput: Arbitrary<RawInput> = choose(
  [8, request],
  [2, fc.tuple(request, request).map(([first, second]) => [[...first, ...second].join('')])],
  [1, fc.tuple(request, fc.nat(60)).map(([parts, at]) => [parts.join('').slice(0, at)])],
  [1, fc.array(odd, { minLength: 1, maxLength: 2 })],
  [1, pick(['\u0016\u0003\u0001\u0002'], ['\r\n\r\n'], ['PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n'])],
).map((parts) => ({ kind: 'raw', parts }));
