/**
 * Resumes streams of server-sent events after a lost connection. In the request header `Last-Event-ID`, the client
 * sends the id of the last event that it received.
 */
import { cancellable } from '../../src/core/cancellable.js';
import { InvalidInputError, quote } from '../../src/core/errors.js';
import type { Context } from '../../src/domain/context.js';

export interface EventCursor {
  lastEventId: string | undefined;
  /** Id of the last event sent to the client. Undefined if a client would miss events by resuming after that event. */
  eventId?: bigint | undefined;
}

/**
 * Yields the events after the client's cursor, and records each event's id. The header `Last-Event-ID` overrides the
 * argument `after`, because a reconnecting browser sends the same `after` as in its first request.
 * @param isResumable returns whether a client can resume after an event without missing events
 * @throws InvalidInputError for a malformed `Last-Event-ID`
 */
export function watchFromCursor<Event extends { eventId: bigint }>(
  ctx: Context & { cursor?: EventCursor },
  given: bigint | null | undefined,
  watch: (after: bigint | null | undefined, signal: AbortSignal) => AsyncGenerator<Event>,
  isResumable: (event: Event) => boolean = () => true,
): AsyncGenerator<Event> {
  const { cursor } = ctx;
  const after = readLastEventId(cursor?.lastEventId) ?? given;
  return cancellable(
    (signal) => watch(after, signal),
    (event) => {
      if (cursor) cursor.eventId = isResumable(event) ? event.eventId : undefined;
    },
  );
}

function readLastEventId(text: string | undefined): bigint | undefined {
  if (text === undefined) return undefined;
  if (/^\d{1,19}$/.test(text)) return BigInt(text);
  throw new InvalidInputError('Last-Event-ID', `must be an event id, not ${quote(text)}`);
}
