/**
 * If a collector is configured (OTEL_EXPORTER_OTLP_ENDPOINT), sends spans to the collector by OTLP over HTTP. Only this
 * file loads the OpenTelemetry SDK, which reads the other OTEL environment variables.
 */
import type { DiagAPI } from '@opentelemetry/api';
import type { Logger } from 'pino';
import type { Config } from '../config/config.js';
import { traceBy } from '../core/traces.js';

/** Minimum time between two log messages about failures to send spans. */
const REPORT_MS = 60_000;

const FLUSH_MS = 2000;

/** Starts tracing. @returns a function that sends the remaining spans; undefined if no collector is configured */
export async function openTraces(config: Config, log: Logger): Promise<(() => Promise<void>) | undefined> {
  if (!config.telemetry.traces) return undefined;
  const [api, sdk, { OTLPTraceExporter }, { defaultResource, detectResources, envDetector, resourceFromAttributes }] =
    await Promise.all([
      import('@opentelemetry/api'),
      import('@opentelemetry/sdk-trace-base'),
      import('@opentelemetry/exporter-trace-otlp-http'),
      import('@opentelemetry/resources'),
    ]);
  reportFailures(api.diag, log);
  const named = resourceFromAttributes({ 'service.name': 'tapegate' });
  const resource = defaultResource()
    .merge(named)
    .merge(detectResources({ detectors: [envDetector] }));
  const provider = new sdk.BasicTracerProvider({
    resource,
    spanProcessors: [new sdk.BatchSpanProcessor(new OTLPTraceExporter())],
  });
  traceBy(api, provider.getTracer('tapegate'));
  return async () => {
    await Promise.race([provider.shutdown(), new Promise((resolve) => setTimeout(resolve, FLUSH_MS).unref())]).catch(
      () => {},
    );
  };
}

function reportFailures(diag: DiagAPI, log: Logger): void {
  let reportedAt = Number.NEGATIVE_INFINITY;
  const report = (message: string) => {
    if (performance.now() - reportedAt < REPORT_MS) return;
    reportedAt = performance.now();
    log.warn({ reason: message.slice(0, 500) }, 'cannot send traces');
  };
  const none = () => {};
  diag.setLogger({ error: report, warn: report, info: none, debug: none, verbose: none });
}
