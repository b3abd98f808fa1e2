/** Settings of what tells how Tapegate goes: metrics, logs and traces. */
import type { ConfigReader } from './config-reader.js';

export interface TelemetryConfig {
  /** Of a listener for metrics alone; undefined: there is none. */
  metricsPort: number | undefined;
  metricsHost: string;
  /** A line in the log for each answer. */
  accessLog: boolean;
  /** Spans are sent to a collector, which OpenTelemetry finds by its own variables. */
  traces: boolean;
}

export function readTelemetryConfig({ text, parsed, oneOf }: ConfigReader): TelemetryConfig {
  const collector = parsed('OTEL_EXPORTER_OTLP_ENDPOINT', parseCollector, 'a URL that begins with http:// or https://');
  return {
    metricsPort: parsed('METRICS_PORT', parsePort, 'a whole number from 0 to 65535'),
    metricsHost: text('METRICS_HOST') ?? '127.0.0.1',
    accessLog: oneOf('ACCESS_LOG', ['on', 'off'], 'off') === 'on',
    traces: collector !== undefined,
  };
}

function parsePort(text: string): number | undefined {
  return /^\d{1,5}$/.test(text) && Number(text) <= 65_535 ? Number(text) : undefined;
}

function parseCollector(text: string): string | undefined {
  return /^https?:\/\/[^\s/]/.test(text) && URL.canParse(text) ? text : undefined;
}
