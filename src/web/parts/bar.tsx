/** A progress or usage bar. */
export function Bar({
  value,
  label,
  kind = 'done',
}: {
  value: number;
  label: string;
  kind?: 'done' | 'full' | 'failed';
}) {
  const percent = Math.floor(value * 100);
  return <progress class={kind} max={100} value={percent} aria-label={label} title={`${percent}%`} />;
}
