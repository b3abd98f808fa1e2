/**
 * Sends spans by OTLP over HTTP if a collector is configured (OTEL_EXPORTER_OTLP_ENDPOINT). The SDK, loaded only here,
 * reads its other variables itself.
 */
import type { Logger } from 'pino';
import type { Config } from './config.js';
import { type SpanOptions, traceBy } from './traces.js';

/** Failures are logged once in so long. */
const TOLD_MS = 60_000;

const FLUSH_MS = 2000;

/** @returns a function that sends what is left; undefined if no collector is configured */
export async function openTraces(config: Config, log: Logger): Promise<(() => Promise<void>) | undefined> {
  if (!config.telemetry.traces) return undefined;
  const [api, sdk, { OTLPTraceExporter }, { defaultResource, detectResources, envDetector, resourceFromAttributes }] =
    await Promise.all([
      import('@opentelemetry/api'),
      import('@opentelemetry/sdk-trace-base'),
      import('@opentelemetry/exporter-trace-otlp-http'),
      import('@opentelemetry/resources'),
    ]);
  tellFailures(api.diag, log);
  const named = resourceFromAttributes({ 'service.name': 'tapegate' });
  const resource = defaultResource()
    .merge(named)
    .merge(detectResources({ detectors: [envDetector] }));
  const provider = new sdk.BasicTracerProvider({
    resource,
    spanProcessors: [new sdk.BatchSpanProcessor(new OTLPTraceExporter())],
  });
  const tracer = provider.getTracer('tapegate');
  traceBy({
    start: (name, { kind, parent, attributes = {} }: SpanOptions) => {
      const spanKind = kind === 'server' ? api.SpanKind.SERVER : api.SpanKind.INTERNAL;
      const context = parent === undefined ? api.ROOT_CONTEXT : withParent(api, parent);
      const span = tracer.startSpan(name, { kind: spanKind, attributes }, context);
      const { traceId, spanId, traceFlags } = span.spanContext();
      const isRecorded = (traceFlags & api.TraceFlags.SAMPLED) !== 0;
      return {
        traceparent: isRecorded ? `00-${traceId}-${spanId}-01` : undefined,
        end: (more, error) => {
          if (more) span.setAttributes(more);
          if (error !== undefined) span.setStatus({ code: api.SpanStatusCode.ERROR, message: error });
          span.end();
        },
      };
    },
  });
  return async () => {
    await Promise.race([provider.shutdown(), new Promise((resolve) => setTimeout(resolve, FLUSH_MS).unref())]).catch(
      () => {},
    );
  };
}

type Api = typeof import('@opentelemetry/api');

function withParent({ ROOT_CONTEXT, trace }: Api, traceparent: string): import('@opentelemetry/api').Context {
  const [, traceId = '', spanId = '', flags = '00'] = traceparent.split('-');
  return trace.setSpanContext(ROOT_CONTEXT, {
    traceId,
    spanId,
    traceFlags: Number.parseInt(flags, 16) & 1,
    isRemote: true,
  });
}

function tellFailures(diag: Api['diag'], log: Logger): void {
  let toldAt = Number.NEGATIVE_INFINITY;
  const tell = (message: string) => {
    if (performance.now() - toldAt < TOLD_MS) return;
    toldAt = performance.now();
    log.warn({ reason: message.slice(0, 500) }, 'traces are not sent');
  };
  const none = () => {};
  diag.setLogger({ error: tell, warn: tell, info: none, debug: none, verbose: none });
}
