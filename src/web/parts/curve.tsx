/**
 * A chart of values over time. Each view also contains a table with the exact values, which screen readers can read.
 */
import { formatSpanEnd } from '../format';

const WIDTH = 600;
const HEIGHT = 120;

export interface CurveProps {
  title: string;
  /** Data points. If the value of a point is null, the chart's line has a gap at this point. */
  points: readonly { at: string; value: number | null }[];
  /** Start of the chart's time span, in milliseconds since 1970. */
  from: number;
  until: number;
  /** Whether each value remains valid until the time of the next value. */
  isStepped?: boolean;
  format(value: number): string;
}

export function Curve({ title, points, from, until, isStepped = false, format }: CurveProps) {
  const known = points.flatMap(({ value }) => (value === null ? [] : [value]));
  const most = Math.max(0, ...known);
  const last = known.at(-1);
  const summary = `${title}: ${last === undefined ? 'no data' : `latest ${format(last)}, maximum ${format(most)}`}`;
  const ends = [from, until].map((end) => formatSpanEnd(end, until - from));
  return (
    <figure class="curve">
      <figcaption>{summary}</figcaption>
      <span class="most">{format(most)}</span>
      <svg
        viewBox={`0 0 ${WIDTH} ${HEIGHT}`}
        preserveAspectRatio="none"
        role="img"
        aria-label={`${summary}, from ${ends.join(' to ')}`}
      >
        {partsOf({ points, from, until, isStepped }, most).map((line) => (
          <polyline key={line} points={line} />
        ))}
      </svg>
      <span class="ends" aria-hidden="true">
        <span>{ends[0]}</span>
        <span>{ends[1]}</span>
      </span>
    </figure>
  );
}

type Drawn = Required<Pick<CurveProps, 'points' | 'from' | 'until' | 'isStepped'>>;

/** Returns the segments of the chart's line, with gaps between them where values are unknown. */
function partsOf({ points, from, until, isStepped }: Drawn, most: number): string[] {
  const parts: string[][] = [[]];
  let height: string | undefined;
  for (const { at, value } of points) {
    const x = ((WIDTH * (Date.parse(at) - from)) / Math.max(1, until - from)).toFixed(1);
    const y = (HEIGHT - 2 - ((HEIGHT - 4) * (value ?? 0)) / (most || 1)).toFixed(1);
    if (value === null) parts.push([]);
    else if (isStepped && height !== undefined) parts.at(-1)?.push(`${x},${height}`, `${x},${y}`);
    else parts.at(-1)?.push(`${x},${y}`);
    height = value === null ? undefined : y;
  }
  return parts.filter((part) => part.length > 0).map((part) => part.join(' '));
}
