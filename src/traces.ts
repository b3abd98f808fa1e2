/**
 * Spans of traces for a tracer, if any (src/open-traces.ts). A trace passes between processes as `traceparent` (W3C
 * Trace Context), and through the database with a request. Imports nothing.
 */

export type Attributes = Readonly<Record<string, string | number | boolean>>;

export interface Span {
  /** For parts of the span; undefined if the trace is not recorded. */
  traceparent: string | undefined;
  /** @param error for people */
  end(attributes?: Attributes, error?: string): void;
}

export interface SpanOptions {
  kind: 'server' | 'internal';
  parent?: string | undefined;
  attributes?: Attributes;
}

interface Tracer {
  start(name: string, options: SpanOptions): Span;
}

/** Version 00, with ids other than zero. */
const TRACEPARENT = /^00-(?!0{32})[\da-f]{32}-(?!0{16})[\da-f]{16}-[\da-f]{2}$/;

let tracer: Tracer | undefined;

export function traceBy(given: Tracer): void {
  tracer = given;
}

export const isTracing = (): boolean => tracer !== undefined;

/** Starts a span for a caller's request, which may continue the caller's trace. */
export function startServerSpan(name: string, given: unknown, attributes: Attributes): Span | undefined {
  const parent = typeof given === 'string' && TRACEPARENT.test(given) ? given : undefined;
  return tracer?.start(name, { kind: 'server', parent, attributes });
}

/** Starts a part of a traced span. */
export function startPart(
  name: string,
  parent: string | null | undefined,
  attributes: Attributes = {},
): Span | undefined {
  if (parent === undefined || parent === null) return undefined;
  return tracer?.start(name, { kind: 'internal', parent, attributes });
}
