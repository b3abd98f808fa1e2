import type { ComponentChildren } from 'preact';
import { useEffect } from 'preact/hooks';

/** The heading of a view, which its window and its place in the browser's history are called by. */
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
