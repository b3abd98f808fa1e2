/** Grey lines in place of data that is loading. */
const DEFAULT_LINES = 6;

export function Skeleton({ lines = DEFAULT_LINES }: { lines?: number }) {
  return (
    <div class="skeleton" role="status" aria-label="Loading">
      {Array.from({ length: lines }, (_, line) => (
        <span key={line} />
      ))}
    </div>
  );
}
