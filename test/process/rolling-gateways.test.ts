/** A gateway that stops or restarts, and its clients. upgrade.test.ts restarts gateways behind a load balancer. */
import { once } from 'node:events';
import net from 'node:net';
import { createClient } from 'graphql-sse';
import { afterAll, expect, test } from 'vitest';
import { startBeside } from '../support/app.js';
import { addQuota, addTaped } from '../support/factories.js';
import { holdReads } from '../support/held-reads.js';
import { createMemoryLibrary } from '../support/memory-library.js';
import { findFreePort } from '../support/ports.js';
import { cleanUp, serveHere } from '../support/process.js';
import { waitForView } from '../support/request-view.js';
import { makeRequest } from '../support/rest.js';
import { useApp } from '../support/use-app.js';
import { waitFor } from '../support/wait.js';

const library = createMemoryLibrary();

const app = useApp({ library, config: { drives: 6 } }, async () => {
  await addQuota(app.ctx, 'alice', 10n ** 9n);
});
afterAll(cleanUp);

const serve = (port: number) => serveHere({ DATABASE_URL: app.databaseUrl, DATA_DIR: app.dataDir, PORT: String(port) });

const FILES = 'GET /tape_control/api/v1/files?match=/none/ HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n';

/** Opens a connection to a gateway, and collects the received text. */
function connect({ url }: { url: string }) {
  const socket = net.connect(Number(new URL(url).port), '127.0.0.1');
  const ended = once(socket, 'end');
  const connection = { ended, received: '', send: (text: string) => void socket.write(text) };
  socket.on('data', (bytes) => {
    connection.received += bytes;
  });
  return connection;
}

test('a gateway that stops answers on open connections for TAPEGATE_LEAVE_SECONDS, and each answer closes its connection', async () => {
  const leaving = await startBeside(app, { config: { leaveSeconds: 2 } });
  const connection = connect(leaving);
  connection.send(FILES);
  await waitFor('the first answer', async () => connection.received.endsWith(']}]'));
  expect(connection.received).toMatch(/^HTTP\/1\.1 200 /);
  expect(connection.received).not.toMatch(/^Connection: close\r$/im);
  connection.received = '';
  const closed = leaving.close();
  connection.send(FILES);
  await connection.ended;
  expect(connection.received).toMatch(/^HTTP\/1\.1 200 .*^Connection: close\r$/ims);
  await closed;
});

test('a gateway that stops answers on a connection whose stream has just ended', async () => {
  const leaving = await startBeside(app, { config: { leaveSeconds: 0 } });
  const connection = connect(leaving);
  const query = encodeURIComponent('subscription { requestChanges { hasMore } }');
  connection.send(`GET /graphql?query=${query} HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: text/event-stream\r\n\r\n`);
  await waitFor('the first event', async () => connection.received.includes('"hasMore"'));
  const closed = leaving.close();
  await waitFor('the end of the stream', async () => connection.received.endsWith('0\r\n\r\n'));
  connection.received = '';
  connection.send(FILES);
  await connection.ended;
  expect(connection.received).toMatch(/^HTTP\/1\.1 200 .*^Connection: close\r$/ims);
  await closed;
});

interface Progress {
  state: string;
  filesOnDisk: number;
  eventId: string;
}

/** Watches a request with graphql-sse. @param mode.resumes whether the client asks for events after its last event */
function watch(url: string, id: number, mode: { singleConnection: boolean; resumes: boolean }) {
  const received: Progress[] = [];
  /** `connections` contains the number of events before each connection; `end` is `complete` or the error. */
  const watcher = { received, connections: [] as number[], end: undefined as string | undefined };
  const client = createClient({
    url: `${url}/graphql/stream`,
    singleConnection: mode.singleConnection,
    on: { connected: () => void watcher.connections.push(received.length) },
  });
  const variables: { id: number; after?: string } = mode.resumes ? { id, after: '0' } : { id };
  const query = `subscription ($id: Int!, $after: BigInt) {
    requestProgress(requestId: $id, after: $after) { state filesOnDisk eventId } }`;
  const end = (how: string) => {
    watcher.end ??= how;
  };
  client.subscribe<{ requestProgress: Progress }>(
    { query, variables },
    {
      next: ({ data, errors }) => {
        if (!data) return end(errors?.[0]?.message ?? 'no data');
        received.push(data.requestProgress);
        if (mode.resumes) variables.after = data.requestProgress.eventId;
      },
      error: (error) => end(String(error)),
      complete: () => end('complete'),
    },
  );
  return watcher;
}

test('clients of a gateway that restarts reconnect: they get each event once if they resume, else the current state', async () => {
  const held = holdReads(library);
  const readFiles = (...numbers: number[]) => {
    for (const n of numbers) held.open(`ROLL${n}`);
  };
  const files = [1, 2, 3, 4, 5, 6].map((n) => ({ path: `/roll/${n}`, volume: `ROLL${n}` }));
  await addTaped(app.ctx, library, files);
  await addQuota(app.ctx, 'roll', 1_000_000n);
  const id = await makeRequest(app, { quota: 'roll', patterns: '/roll/' });
  const port = await findFreePort();
  const first = await serve(port);
  const modes = [true, false].flatMap((singleConnection) =>
    [true, false].map((resumes) => ({ singleConnection, resumes })),
  );
  const watchers = modes.map((mode) => watch(first.url, id, mode));
  const waitForFiles = (count: number) =>
    waitFor(`${count} files in each subscription`, async () =>
      watchers.every(({ received, end }) => end !== undefined || received.at(-1)?.filesOnDisk === count),
    );
  readFiles(1, 2);
  await waitForFiles(2);
  await first.stop();
  readFiles(3, 4);
  await waitForView(app, id, 'has 4 files', ({ filesOnDisk }) => filesOnDisk === 4);
  const second = await serve(port);
  await waitForFiles(4);
  expect(watchers.map(({ end }) => end)).toEqual(watchers.map(() => undefined));
  readFiles(5, 6);
  const reader = watch(second.url, id, { singleConnection: false, resumes: true });
  await waitFor('the end', async () => [...watchers, reader].every(({ end }) => end !== undefined));
  expect(reader.received.at(-1)).toMatchObject({ state: 'COMPLETED', filesOnDisk: 6 });
  for (const [index, { received, connections, end }] of watchers.entries()) {
    expect({ end, isReconnected: connections.length > 1 }).toEqual({ end: 'complete', isReconnected: true });
    const counts = received.map(({ filesOnDisk }) => filesOnDisk);
    if (modes[index]?.resumes) expect(received).toEqual(reader.received);
    else expect([counts[connections.at(-1) ?? 0], counts.at(-1)]).toEqual([4, 6]);
    expect(counts).toEqual([...counts].sort((a, b) => a - b));
  }
});
