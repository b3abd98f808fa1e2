/** Cursors of event streams by server-sent events: `Last-Event-ID` and `id:`. */
import { cancellable } from '../../src/core/cancellable.js';
import { InvalidInputError, quote } from '../../src/core/errors.js';
import type { Context } from '../../src/domain/context.js';

export interface EventPlace {
  lastEventId: string | undefined;
  /** The last event read; undefined if a reader cannot resume after it. */
  eventId?: bigint | undefined;
}

/**
 * Watches from the reader's cursor, and records the cursor of each event. `Last-Event-ID` overrides `after`, since a
 * browser reconnects to the same URL.
 * @param isPlace whether a reader that resumes after this event misses nothing
 * @throws InvalidInputError for a malformed `Last-Event-ID`
 */
export function watchFromPlace<Event extends { eventId: bigint }>(
  ctx: Context & { place?: EventPlace },
  given: bigint | null | undefined,
  watch: (after: bigint | null | undefined, signal: AbortSignal) => AsyncGenerator<Event>,
  isPlace: (event: Event) => boolean = () => true,
): AsyncGenerator<Event> {
  const { place } = ctx;
  const after = readLastEventId(place?.lastEventId) ?? given;
  return cancellable(
    (signal) => watch(after, signal),
    (event) => {
      if (place) place.eventId = isPlace(event) ? event.eventId : undefined;
    },
  );
}

function readLastEventId(text: string | undefined): bigint | undefined {
  if (text === undefined) return undefined;
  if (/^\d{1,19}$/.test(text)) return BigInt(text);
  throw new InvalidInputError('Last-Event-ID', `must be the id of an event, not ${quote(text)}`);
}
