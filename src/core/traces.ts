/**
 * Starts trace spans through the OpenTelemetry API, if a collector is configured. Processes pass traces to each other
 * as `traceparent` values (W3C Trace Context).
 */
import type { Attributes, SpanOptions, Tracer } from '@opentelemetry/api';

type Api = typeof import('@opentelemetry/api');

export interface Span {
  /** The `traceparent` value for child spans; undefined if the trace is not recorded. */
  traceparent: string | undefined;
  /** Ends the span. If `error` is set, the span failed with this error message. */
  end(attributes?: Attributes, error?: string): void;
}

const TRACEPARENT = /^00-((?!0{32})[\da-f]{32})-((?!0{16})[\da-f]{16})-([\da-f]{2})$/;

let tracing: { api: Api; tracer: Tracer } | undefined;

/** Enables tracing. @param api the OpenTelemetry API, which a process without tracing does not load */
export function traceBy(api: Api, tracer: Tracer): void {
  tracing = { api, tracer };
}

export const isTracing = (): boolean => tracing !== undefined;

/** Starts a span for a caller's request. The span continues the caller's trace, if any. */
export function startServerSpan(name: string, given: unknown, attributes: Attributes): Span | undefined {
  if (!tracing) return undefined;
  return start(name, { kind: tracing.api.SpanKind.SERVER, attributes }, typeof given === 'string' ? given : '');
}

export function startPart(
  name: string,
  parent: string | null | undefined,
  attributes: Attributes = {},
): Span | undefined {
  return parent ? start(name, { attributes }, parent) : undefined;
}

function start(name: string, options: SpanOptions, parent: string): Span | undefined {
  if (!tracing) return undefined;
  const { api, tracer } = tracing;
  const [, traceId, spanId, flags = ''] = TRACEPARENT.exec(parent) ?? [];
  const traceFlags = Number.parseInt(flags, 16) & api.TraceFlags.SAMPLED;
  const context =
    traceId === undefined || spanId === undefined
      ? api.ROOT_CONTEXT
      : api.trace.setSpanContext(api.ROOT_CONTEXT, { traceId, spanId, traceFlags, isRemote: true });
  const span = tracer.startSpan(name, options, context);
  const own = span.spanContext();
  return {
    traceparent: span.isRecording() ? `00-${own.traceId}-${own.spanId}-01` : undefined,
    end: (more = {}, error) => {
      span.setAttributes(more);
      if (error !== undefined) span.setStatus({ code: api.SpanStatusCode.ERROR, message: error });
      span.end();
    },
  };
}
