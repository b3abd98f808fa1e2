/** Where the reader of an event stream stands, in the words of server-sent events: `Last-Event-ID` and `id:`. */
import type { Context } from '../src/context.js';
import { InvalidInputError, quote } from '../src/errors.js';

export interface EventPlace {
  /** The last event that the reader says it has seen. */
  lastEventId: string | undefined;
  /** The last event that was read for it; undefined where a reader cannot resume after it. */
  eventId?: bigint | undefined;
}

/**
 * Watches from where the reader stands, and records the place of each event. `Last-Event-ID` overrides `after`, since a browser
 * reconnects to the same address.
 * @param isPlace whether a reader that has seen this event, and none after it, has missed nothing
 * @throws InvalidInputError for a malformed `Last-Event-ID`
 */
export async function* watchFromPlace<Event extends { eventId: bigint }>(
  ctx: Context & { place?: EventPlace },
  after: bigint | null | undefined,
  watch: (after: bigint | null | undefined) => AsyncGenerator<Event>,
  isPlace: (event: Event) => boolean = () => true,
): AsyncGenerator<Event> {
  const { place } = ctx;
  for await (const event of watch(readLastEventId(place?.lastEventId) ?? after)) {
    if (place) place.eventId = isPlace(event) ? event.eventId : undefined;
    yield event;
  }
}

function readLastEventId(text: string | undefined): bigint | undefined {
  if (text === undefined) return undefined;
  if (/^\d{1,19}$/.test(text)) return BigInt(text);
  throw new InvalidInputError('Last-Event-ID', `must be the id of an event, not ${quote(text)}`);
}
