/** Shows a relative time, with local time and UTC in a tooltip. */
import { formatSpan, formatTime, formatUtc } from '../format';
import { useNow } from '../now';

interface MomentProps {
  at: string;
  isFull?: boolean;
  /**
   * Whether to show the time as past or as future. By default, the component compares the time with the browser's
   * clock. Set `side` if the browser's clock might be wrong, or if a planned event might be late.
   */
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
