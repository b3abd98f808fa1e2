/** A curve over time, for the eye; the same figures stand in a table for whoever cannot see it, or wants them. */
const WIDTH = 600;
const HEIGHT = 120;

export interface CurveProps {
  title: string;
  /** Null where nobody could look: the curve has a gap there. */
  points: readonly { at: string; value: number | null }[];
  format(value: number): string;
}

export function Curve({ title, points, format }: CurveProps) {
  const known = points.flatMap(({ value }) => (value === null ? [] : [value]));
  const most = Math.max(0, ...known);
  const last = known.at(-1);
  const said = `${title}: ${last === undefined ? 'nothing is known' : `${format(last)} last, ${format(most)} at most`}`;
  return (
    <figure class="curve">
      <figcaption>{said}</figcaption>
      <svg viewBox={`0 0 ${WIDTH} ${HEIGHT}`} preserveAspectRatio="none" role="img" aria-label={said}>
        {partsOf(points, most).map((line) => (
          <polyline key={line} points={line} />
        ))}
      </svg>
    </figure>
  );
}

/** Lines without gaps. */
function partsOf(points: CurveProps['points'], most: number): string[] {
  const times = points.map(({ at }) => Date.parse(at));
  const [first = 0, last = 1] = [times[0], times.at(-1)];
  const parts: string[][] = [[]];
  for (const [index, { value }] of points.entries()) {
    const x = (WIDTH * ((times[index] ?? first) - first)) / Math.max(1, last - first);
    const y = HEIGHT - 2 - ((HEIGHT - 4) * (value ?? 0)) / (most || 1);
    if (value === null) parts.push([]);
    else parts.at(-1)?.push(`${x.toFixed(1)},${y.toFixed(1)}`);
  }
  return parts.filter((part) => part.length > 0).map((part) => part.join(' '));
}
