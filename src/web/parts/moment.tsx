import { formatSpan, formatTime, formatUtc } from '../format';
import { useNow } from '../now';

/** A time as people say it, with the zone of the browser and UTC at hand. */
export function Moment({ at, isFull = false }: { at: string; isFull?: boolean }) {
  const now = useNow();
  const title = `${formatTime(at)} · ${formatUtc(at)}`;
  return (
    <time dateTime={at} title={title}>
      {isFull ? `${formatTime(at)} (${formatSpan(at, now)})` : formatSpan(at, now)}
    </time>
  );
}
