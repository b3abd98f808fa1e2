/**
 * The trace of a restore, from the HTTP request to the rename of the file, as an OpenTelemetry collector receives it.
 */
import { readdirSync, readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import path from 'node:path';
import { json } from 'node:stream/consumers';
import { afterAll, expect, test } from 'vitest';
import { createDatabase } from '../support/database.js';
import { closeServer, listen } from '../support/ports.js';
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

/** Starts an OTLP collector over HTTP with JSON. */
async function startCollector() {
  const spans: Span[] = [];
  const services = new Set<unknown>();
  const server = createServer(async (req, res) => {
    if (req.url === '/v1/traces') {
      for (const { resource, scopeSpans } of ((await json(req)) as Sent).resourceSpans) {
        services.add(resource.attributes.find(({ key }) => key === 'service.name')?.value.stringValue);
        for (const scope of scopeSpans) spans.push(...scope.spans);
      }
    }
    res.writeHead(200, { 'Content-Type': 'application/json' }).end('{}');
  });
  return { url: `http://127.0.0.1:${await listen(server)}`, spans, services, close: () => closeServer(server) };
}

afterAll(cleanUp);

const textOf = ({ attributes }: Span, name: string) => attributes.find(({ key }) => key === name)?.value.stringValue;

test("a restore is one trace, which continues the caller's trace, and a missing collector delays no restore", async () => {
  const collector = await startCollector();
  const sending = { OTEL_EXPORTER_OTLP_ENDPOINT: collector.url, OTEL_SERVICE_NAME: 'tapes' };
  const sooner = { OTEL_BSP_SCHEDULE_DELAY: '200', OTEL_EXPORTER_OTLP_TIMEOUT: '1000' };
  const env = { DATA_DIR: makeDataDir(), TAPEGATE_AUTH: 'open', ...sooner, ...sending };
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

  await collector.close();
  await waitForEnd(gateway, await makeRequest(gateway, { quota: 'alice', patterns: '/demo/ocean/2025' }));
  await waitFor('the log to report it', async () => server.stderr().includes('cannot send traces'));
  expect((await stop(server)).code).toBe(0);
});

test('a gateway without a collector does not load the OpenTelemetry SDK', async () => {
  const dir = path.join(path.dirname(cliFile), 'chunks');
  const hasSdk = (name: string) => /BatchSpanProcessor\s*=\s*class/.test(readFileSync(path.join(dir, name), 'utf8'));
  const chunks = readdirSync(dir).filter((name) => name.endsWith('.cjs'));
  const database = await createDatabase();
  const env = { DATABASE_URL: database.url, DATA_DIR: makeTempDir(), NODE_DEBUG: 'module' };
  const { stderr } = await stop(await startServer('serve', { env }));
  const loaded = chunks.filter((name) => stderr.includes(`${name}" for module`));
  expect([loaded.length > 0, chunks.some(hasSdk), loaded.some(hasSdk)]).toEqual([true, true, false]);
  await database.drop();
});
