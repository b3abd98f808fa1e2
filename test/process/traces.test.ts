/** One trace from the call that makes a request to the rename of its file, as a collector of OpenTelemetry has it. */
import { readdirSync, readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import path from 'node:path';
import { afterAll, afterEach, beforeEach, expect, test } from 'vitest';
import { createDatabase } from '../support/database.js';
import { cleanUp, cliFile, makeDataDir, startServer, stop } from '../support/process.js';
import { makeRequest } from '../support/rest.js';
import { DEMO, waitForEnd } from '../support/server.js';
import { makeTempDir } from '../support/temp-dir.js';
import { waitFor } from '../support/wait.js';

interface Span {
  traceId: string;
  spanId: string;
  parentSpanId?: string;
  name: string;
  attributes: { key: string; value: Record<string, unknown> }[];
  status?: { code?: number };
}

interface Sent {
  resourceSpans: { resource: { attributes: Span['attributes'] }; scopeSpans: { spans: Span[] }[] }[];
}

interface Collector {
  url: string;
  spans: Span[];
  services: Set<unknown>;
  close(): void;
}

/** OTLP over HTTP, as JSON: what it is sent. */
async function startCollector(): Promise<Collector> {
  const [spans, services]: [Span[], Set<unknown>] = [[], new Set()];
  const server = createServer((req, res) => {
    const parts: Buffer[] = [];
    req
      .on('data', (part) => parts.push(part))
      .on('end', () => {
        if (req.url === '/v1/traces') {
          for (const { resource, scopeSpans } of (JSON.parse(Buffer.concat(parts).toString()) as Sent).resourceSpans) {
            services.add(resource.attributes.find(({ key }) => key === 'service.name')?.value.stringValue);
            for (const scope of scopeSpans) spans.push(...scope.spans);
          }
        }
        res.writeHead(200, { 'Content-Type': 'application/json' }).end('{}');
      });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const close = () => {
    server.closeAllConnections();
    server.close();
  };
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, spans, services, close };
}

let collector: Collector;
beforeEach(async () => {
  collector = await startCollector();
});
afterEach(() => collector.close());
afterAll(cleanUp);

const textOf = ({ attributes }: Span, name: string) => attributes.find(({ key }) => key === name)?.value.stringValue;

test('the spans of a restore are one trace, which a caller has begun, through the gateway and the drive; a collector that goes holds up nothing', async () => {
  const sending = { OTEL_EXPORTER_OTLP_ENDPOINT: collector.url, OTEL_SERVICE_NAME: 'tapes' };
  const env = { DATA_DIR: makeDataDir(), AUTH: 'open', OTEL_BSP_SCHEDULE_DELAY: '200', ...sending };
  const server = await startServer('start', { env });
  const gateway = { url: server.url, api: `${server.url}/tape_control/api/v1` };
  const traceId = '0af7651916cd43dd8448eb211c80319c';
  const made = await fetch(`${gateway.api}/requests`, {
    method: 'POST',
    headers: { 'Content-Type': 'application/json', traceparent: `00-${traceId}-b7ad6b7169203331-01` },
    body: JSON.stringify([{ quota: 'alice', patterns: DEMO }]),
  });
  const [{ req_id: id }] = (await made.json()) as [{ req_id: number }];
  await waitForEnd(gateway, id);
  const all = await waitFor('the spans', async () => {
    const found = collector.spans.filter((span) => span.traceId === traceId);
    const placed = found.filter(({ name }) => name === 'put in place').length;
    return placed > 0 && found.filter(({ name }) => name === 'recall').length === placed && found;
  });
  const post = all.find(({ name }) => name === 'POST /tape_control/api/v1/requests');
  expect(post?.parentSpanId).toBe('b7ad6b7169203331');
  const recalls = all.filter(({ name }) => name === 'recall');
  expect(recalls.length).toBeGreaterThan(1);
  for (const recall of recalls) {
    expect(recall.parentSpanId).toBe(post?.spanId);
    expect(textOf(recall, 'tapegate.outcome')).toBe('restored');
    expect(textOf(recall, 'tapegate.path')).toContain(DEMO);
    const parts = all.filter(({ parentSpanId }) => parentSpanId === recall.spanId).map(({ name }) => name);
    expect(parts.toSorted()).toEqual(['put in place', 'read']);
  }
  expect([...collector.services]).toEqual(['tapes']);
  expect(server.stderr()).toBe('');

  // a collector that is away keeps nobody waiting, and is told of
  collector.close();
  await waitForEnd(gateway, await makeRequest(gateway, { quota: 'alice', patterns: '/demo/ocean/2025' }));
  await waitFor('that to be told', async () => server.stderr().includes('traces are not sent'));
  expect((await stop(server)).code).toBe(0);
});

test('the SDK of OpenTelemetry is loaded where there is a collector, and nowhere else', async () => {
  const chunks = path.join(path.dirname(cliFile), 'chunks');
  const sdk = readdirSync(chunks).filter(
    (name) =>
      name.endsWith('.cjs') && /BatchSpanProcessor\s*=\s*class/.test(readFileSync(path.join(chunks, name), 'utf8')),
  );
  const database = await createDatabase();
  const isLoadedWith = async (sending: Record<string, string>) => {
    const env = { DATABASE_URL: database.url, DATA_DIR: makeTempDir(), NODE_DEBUG: 'module', ...sending };
    const server = await startServer('serve', { env });
    const { stderr } = await stop(server);
    return sdk.some((name) => stderr.includes(`${name}" for module`));
  };
  expect(await isLoadedWith({})).toBe(false);
  expect(await isLoadedWith({ OTEL_EXPORTER_OTLP_ENDPOINT: collector.url })).toBe(true);
  await database.drop();
});
