import type { ComponentChildren } from 'preact';
import { useEffect } from 'preact/hooks';

/** Shows the heading of a view, and sets the title of the window. */
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
