import type { ComponentChildren } from 'preact';
import { useEffect } from 'preact/hooks';

/** The heading of a view, and the title of its window. */
export function Title({ text, children }: { text: string; children?: ComponentChildren }) {
  useEffect(() => {
    document.title = `${text} · Tapegate`;
  }, [text]);
  return (
    <h1>
      <bdi>{text}</bdi> {children}
    </h1>
  );
}
