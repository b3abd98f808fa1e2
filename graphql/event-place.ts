/** Where the reader of an event stream stands, in the words of server-sent events: `Last-Event-ID` and `id:`. */
import type { Context } from '../src/context.js';
import { InvalidInputError, quote } from '../src/errors.js';

export interface EventPlace {
  /** What the reader says it has seen last. */
  lastEventId: string | undefined;
  /** Of the event that is being told; undefined where nobody could go on from there. */
  eventId?: bigint | undefined;
  /** That event had come before this reader did. */
  isPast?: boolean;
  /** What is told goes by more than what comes after its place: who has come from elsewhere cannot go on from the same place. */
  isApart?: boolean;
}

/**
 * Watches from where the reader stands, which knows more than an `after` of an address that a browser calls again, and
 * notes the place of each event.
 * @param isPlace whether a reader that has seen this event, and none after it, has missed nothing
 * @throws InvalidInputError for a `Last-Event-ID` that is none
 */
export async function* watchFromPlace<Event extends { eventId: bigint; isPast?: boolean; isApart?: boolean }>(
  ctx: Context & { place?: EventPlace },
  after: bigint | null | undefined,
  watch: (after: bigint | null | undefined) => AsyncGenerator<Event>,
  isPlace: (event: Event) => boolean = () => true,
): AsyncGenerator<Event> {
  const { place } = ctx;
  for await (const event of watch(readLastEventId(place?.lastEventId) ?? after)) {
    const { eventId, isPast = false, isApart = false } = event;
    if (place) Object.assign(place, { eventId: isPlace(event) ? eventId : undefined, isPast, isApart });
    yield event;
  }
}

function readLastEventId(text: string | undefined): bigint | undefined {
  if (text === undefined) return undefined;
  if (/^\d{1,19}$/.test(text)) return BigInt(text);
  throw new InvalidInputError('Last-Event-ID', `must be the id of an event, not ${quote(text)}`);
}
