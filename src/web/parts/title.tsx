import type { ComponentChildren } from 'preact';
import { useEffect } from 'preact/hooks';

/** Shows a view's heading, and sets the window's title. */
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
