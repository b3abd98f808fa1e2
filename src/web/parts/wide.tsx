import type { ComponentChildren } from 'preact';

/** What may be wider than the page: it scrolls by itself, by the keyboard too. */
export function Wide({ label, children }: { label: string; children: ComponentChildren }) {
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: who has no mouse could not scroll it otherwise
    <section class="wide" aria-label={label} tabIndex={0}>
      {children}
    </section>
  );
}
