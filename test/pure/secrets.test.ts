/** How Tapegate hides secrets in messages and in the log. */
import { Writable } from 'node:stream';
import { type Logger, pino } from 'pino';
import { expect, test } from 'vitest';
import { createHider, showValue } from '../../src/core/secrets.js';

const hide = createHider({});

test.each([
  ['connect postgresql://tapes:s3cret@db:5432/tapes failed', 'connect postgresql://…@db:5432/tapes failed'],
  ['smtps://a%40b:p%3Ass@mail', 'smtps://…@mail'],
  ['https://tapegate_token@host/graphql: fetch failed', 'https://…@host/graphql: fetch failed'],
  ['postgres://u:p/a?s#s@w@db/tapes', 'postgres://…@db/tapes'],
  ['"http://u:p@a" and "http://v:q@b"', '"http://…@a" and "http://…@b"'],
  ['401: Authorization: Bearer eyJhbGciOi.J9.x-y_z', '401: Authorization: Bearer …'],
  ['Basic YWxpY2U6czNjcmV0c2VjcmV0==', 'Basic …'],
  ['{"headers":{"authorization":"Bearer x","host":"a"}}', '{"headers":{"authorization":"…","host":"a"}}'],
  ['{"Set-Cookie":["a=b","c=d"],"cookie":"s=\\"1\\"","n":1}', '{"Set-Cookie":"…","cookie":"…","n":1}'],
  ['{"message":"{\\"client_secret\\":\\"x\\",\\"a\\":1}"}', '{"message":"{\\"client_secret\\":\\"…\\",\\"a\\":1}"}'],
  ['{"connectionString":"postgresql:///x","password":"pw"}', '{"connectionString":"…","password":"…"}'],
  ['GET /graphql/stream?token=abc-def&x=1', 'GET /graphql/stream?token=…&x=1'],
  ['GET /cb?x=1&code=abc', 'GET /cb?x=1&code=…'],
  [`a tapegate_${'aB3_-'.repeat(8)} was shown`, 'a tapegate_… was shown'],
])('%s is shown as %s', (text, shown) => {
  expect(hide(text)).toBe(shown);
});

test.each([
  'the bearer token of the caller has expired',
  'ann@example.org, see https://tapegate.example.org/graphql?query={requests}',
  '{"level":30,"time":1763780000000,"path":"/archive/2024@noon/a.nc","msg":"recall postponed"}',
  'the basic rules: 401 is answered with WWW-Authenticate',
])('%s is not changed', (text) => {
  expect(hide(text)).toBe(text);
});

const env = {
  DATABASE_URL: 'postgresql://tapes:p%40ss%2Fw%C3%B6rd%22x@db.example.org/tapes',
  SMTP_URL: 'smtp://mail-user:1763780000@mail.example.org',
  TAPEGATE_URL: 'https://only-a-token@tapegate.example.org',
  PGPASSWORD: 'of-the-driver',
  OIDC_CLIENT_SECRET: 'of-the-provider',
  OTHER_URL: 'postgresql:///tapes?host=/run&password=in-the-query',
  LIBPQ_URL: "host=127.0.0.1 password=by-a-keyword sslpassword = 'in quotes' dbname=tapes",
};

test.each([
  ['as written', 'p%40ss%2Fw%C3%B6rd%22x'],
  ['decoded', 'p@ss/wörd"x'],
  ['in JSON', JSON.stringify('p@ss/wörd"x').slice(1, -1)],
  ['in a URL', encodeURIComponent('p@ss/wörd"x')],
  ['in base64', Buffer.from('p@ss/wörd"x').toString('base64')],
  ['in SMTP', Buffer.from('\0tapes\0p@ss/wörd"x').toString('base64')],
  ['in HTTP', Buffer.from('tapes:p@ss/wörd"x').toString('base64')],
  ['a number', '1763780000'],
  ['a token as the user', 'only-a-token'],
  ['PGPASSWORD', 'of-the-driver'],
  ['a variable named SECRET', 'of-the-provider'],
  ['a parameter of a URL', 'in-the-query'],
  ['a keyword of libpq', 'by-a-keyword'],
  ['a keyword of libpq, in quotes', 'in quotes'],
])('a secret of the environment is hidden: %s', (_form, secret) => {
  expect(createHider(env)(`535 wrong: ${secret}, go away`)).toBe('535 wrong: …, go away');
});

test('a password that is also a common word is not hidden everywhere', () => {
  const same = createHider({ DATABASE_URL: 'postgresql://tapegate:tapegate@db/tapes', SMTP_URL: 'smtp://u:note@m' });
  for (const text of ['tapegate: no database "tapes" at db', 'noted', '{"time":1763780000,"msg":"a"}']) {
    expect(same(text)).toBe(text);
    expect(createHider(env)(text)).toBe(text);
  }
});

test('hiding takes linear time', () => {
  const long = ['://', 'a://', '\\', '"token":"', '\\"token\\":\\"', 'Bearer a', '?token=', '"cookie":[', 'tapegate_'];
  for (const part of long) {
    const text = part.repeat(200_000 / part.length);
    expect(hide(text).length).toBeLessThanOrEqual(text.length + 200_000);
  }
});

test.each([
  ['DATABASE_URL', 'mysql://u:secret@db/tapes', 'mysql://…@db/tapes'],
  ['DATABASE_URL', 'u:secret@db', '…@db'],
  ['DATABASE_URL', 'postgresql://u:12/3@4#5@db/tapes?password=x', 'postgresql://…@db/tapes?…'],
  ['DATABASE_URL', 'mysql://db/tapes?password=x', 'mysql://db/tapes?…'],
  ['DATABASE_URL', 'postgresql://tapes:secret', 'postgresql://tapes:…'],
  ['DATABASE_URL', 'tapes:secret', 'tapes:…'],
  ['SMTP_URL', 'http://mail:25', 'http://mail:25'],
  ['SMTP_URL', 'smtp:mail.example.org', 'smtp:mail.example.org'],
  ['OIDC_CLIENT_SECRET', 'x y', '…'],
  ['PORT', 'http', 'http'],
])('an error about %s=%s shows %s', (name, value, shown) => {
  expect(showValue(name, value)).toBe(shown);
});

test('the log hides secrets in the message, cause, stack and properties of an error', () => {
  const lines: string[] = [];
  const sink = new Writable({
    write(line, _encoding, callback) {
      lines.push(String(line));
      callback();
    },
  });
  const log: Logger = pino({ hooks: { streamWrite: createHider(env) } }, sink);
  const cause = Object.assign(new Error(`connect ${env.DATABASE_URL} refused`), {
    config: { headers: { Authorization: 'Bearer abc', Cookie: 'a=b' }, connectionString: env.DATABASE_URL },
  });
  log.error({ err: new AggregateError([cause], 'all failed: p@ss/wörd"x', { cause }), req: { cookie: 'a=b' } }, 'x');
  log.child({ url: env.TAPEGATE_URL }).warn('only-a-token');
  expect(lines).toHaveLength(2);
  for (const line of lines) {
    expect(line).not.toMatch(/p%40ss|p@ss|Bearer abc|a=b|only-a-token/);
    expect(JSON.parse(line)).toMatchObject({ level: expect.any(Number), time: expect.any(Number) });
  }
});
