/** A time as people say it, with the zone of the browser and UTC at hand. */
import { formatSpan, formatTime, formatUtc } from '../format';
import { useNow } from '../now';

interface MomentProps {
  at: string;
  isFull?: boolean;
  /** Where it is known to be: the clocks of the gateway and of the browser differ, and what is due may be late. */
  side?: 'past' | 'ahead' | undefined;
}

export function Moment({ at, isFull = false, side }: MomentProps) {
  const now = useNow();
  const time = Date.parse(at);
  const shown = side === 'past' ? Math.min(time, now) : side === 'ahead' ? Math.max(time, now + 1) : time;
  const span = formatSpan(shown, now);
  return (
    <time dateTime={at} title={`${formatTime(at)} · ${formatUtc(at)}`}>
      {isFull ? `${formatTime(at)} (${span})` : span}
    </time>
  );
}
