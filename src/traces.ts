/**
 * Spans of traces, told to whoever sends them on: nobody, unless the wiring says so (src/open-traces.ts). A trace goes from process to process
 * as `traceparent` (W3C Trace Context), and with a request in the database. It imports nothing.
 */

export type Attributes = Readonly<Record<string, string | number | boolean>>;

export interface Span {
  /** For what is done as a part of it; undefined where the trace is not recorded. */
  traceparent: string | undefined;
  /** @param error what went wrong, for people; undefined where nothing did */
  end(attributes?: Attributes, error?: string): void;
}

export interface SpanOptions {
  kind: 'server' | 'internal';
  /** Of what it is a part. */
  parent?: string | undefined;
  attributes?: Attributes;
}

export interface Tracer {
  start(name: string, options: SpanOptions): Span;
}

/** As who asks may send it: version 00, and no ids of zeros. */
const TRACEPARENT = /^00-(?!0{32})[\da-f]{32}-(?!0{16})[\da-f]{16}-[\da-f]{2}$/;

let tracer: Tracer | undefined;

/** From now on spans are begun by it, in this process. */
export function traceBy(given: Tracer): void {
  tracer = given;
}

export const isTracing = (): boolean => tracer !== undefined;

/** Of a request that a caller has sent, who may have begun the trace. */
export function startServerSpan(name: string, given: unknown, attributes: Attributes): Span | undefined {
  const parent = typeof given === 'string' && TRACEPARENT.test(given) ? given : undefined;
  return tracer?.start(name, { kind: 'server', parent, attributes });
}

/** A part of something that is traced; undefined where that is not. */
export function startPart(
  name: string,
  parent: string | null | undefined,
  attributes: Attributes = {},
): Span | undefined {
  if (parent === undefined || parent === null) return undefined;
  return tracer?.start(name, { kind: 'internal', parent, attributes });
}
