/** Messages of commands that cannot reach a server. */
import { PassThrough } from 'node:stream';
import { expect, test } from 'vitest';
import { formatNetworkError } from '../../src/cli/terminal/failure.js';
import { runWith } from '../../src/cli/terminal/io.js';

const url = 'http://127.0.0.1:8080';
const remedy = '(TAPEGATE_TOKEN is set): set TAPEGATE_URL, or unset TAPEGATE_TOKEN to use DATABASE_URL';

test.each([
  [{ TAPEGATE_TOKEN: 'tapegate_x', DATABASE_URL: 'postgresql://127.0.0.1/tapes' }, remedy],
  [{ TAPEGATE_TOKEN: 'tapegate_x', DATABASE_URL: 'postgresql://127.0.0.1/tapes', TAPEGATE_URL: url }, '(TAPEGATE_URL)'],
  [{ TAPEGATE_TOKEN: 'tapegate_x' }, '(default; TAPEGATE_URL is not set)'],
  [{}, '(default; TAPEGATE_URL is not set)'],
])('with the environment %o, the error names what chose the server', async (env, choice) => {
  const [stdin, stdout, stderr] = [new PassThrough(), new PassThrough(), new PassThrough()];
  const message = await runWith({ env, stdin, stdout, stderr }, async () =>
    formatNetworkError(url, Object.assign(new Error(), { code: 'ECONNREFUSED' })),
  );
  expect(message).toBe(`no Tapegate server responds at ${url} ${choice}`);
});
