import { describe, expect, test } from 'vitest';
import { createRequest } from '../../src/domain/requests/create.js';
import { cancelRequest } from '../../src/domain/requests/ends.js';
import { addFiles, addQuota } from '../support/factories.js';
import { request } from '../support/http.js';
import { CHANGES, drain, PROGRESS, type Progress, readEvents, transports } from '../support/streams.js';
import { useApp } from '../support/use-app.js';

const app = useApp({}, async () => {
  await addQuota(app.ctx, 'alice', 1_000_000n);
});

const TIME = expect.stringMatching(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{6})?Z$/);

describe.each(transports)('over %s', (_name, open) => {
  test('a subscription to a finished request returns its state and completes, and after its last event it only completes', async () => {
    await addFiles(app.ctx, [{ path: `/done/${_name}`, stage: 'ONDISK' }]);
    const id = await createRequest(app.ctx, { quota: 'alice', files: [`/done/${_name}`] });
    const results = await drain(open<Progress>(app, { query: PROGRESS, variables: { id } }));
    expect(results).toEqual([
      {
        data: {
          requestProgress: {
            state: 'COMPLETED',
            filesTotal: 1,
            filesOnDisk: 1,
            filesFailed: 0,
            bytesTotal: '1000',
            bytesOnDisk: '1000',
            end: null,
            at: TIME,
            eventId: expect.stringMatching(/^\d+$/),
          },
        },
      },
    ]);
    const after = results[0]?.data?.requestProgress.eventId;
    expect(await drain(open(app, { query: PROGRESS, variables: { id, after } }))).toEqual([]);
    await cancelRequest(app.ctx, id);
    const more = await drain(open<Progress>(app, { query: PROGRESS, variables: { id, after } }));
    expect(more.map(({ data }) => data?.requestProgress.state)).toEqual(['CANCELLED']);
  });

  const unknown = 'there is no request 2147483647, or you are not allowed to see it';
  test.each([
    ['an unknown request', PROGRESS, { id: 2_147_483_647 }, 'NOT_FOUND', unknown],
    ['changes of an unknown request', CHANGES, { requestId: 2_147_483_647 }, 'NOT_FOUND', unknown],
    [
      'a future event',
      CHANGES,
      { after: 4e15 },
      'INVALID_INPUT',
      expect.stringMatching(/^after must be an event id.*, not 40+$/),
    ],
    ['an impossible event', CHANGES, { after: -1 }, 'INVALID_INPUT', expect.stringMatching(/not -1$/)],
  ] as const)(
    '%s is refused with its error, and the stream completes',
    async (_what, query, variables, code, message) => {
      const results = await drain(open(app, { query, variables }));
      expect(results).toMatchObject([{ errors: [{ message, extensions: { code } }] }]);
    },
  );
});

test.each(['/graphql', '/graphql/stream'])('%s streams to a GET as an EventSource sends it', async (path) => {
  await addFiles(app.ctx, [{ path: '/get/1', stage: 'ONDISK' }]);
  const id = await createRequest(app.ctx, { quota: 'alice', files: ['/get/1'] });
  const query = encodeURIComponent(`subscription { requestProgress(requestId: ${id}) { state } }`);
  const headers = { Accept: 'text/event-stream, */*;q=0.1' };
  const results: unknown[] = [];
  for await (const result of readEvents(request(app, `${path}?query=${query}`, { headers }))) results.push(result);
  expect(results).toEqual([{ data: { requestProgress: { state: 'COMPLETED' } } }]);
});
