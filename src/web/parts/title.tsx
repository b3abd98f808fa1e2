/** The heading of a view. */
import type { ComponentChildren } from 'preact';
import { useEffect } from 'preact/hooks';

interface TitleProps {
  text: string;
  /** Buttons and controls beside the heading, which do not belong to its text. */
  actions?: ComponentChildren;
  /** Short texts in the heading, such as a state. */
  children?: ComponentChildren;
}

/** Shows the heading of a view, and sets the title of the window. */
export function Title({ text, actions, children }: TitleProps) {
  useEffect(() => {
    document.title = `${text} · Tapegate`;
  }, [text]);
  const heading = (
    <h1>
      <bdi>{text}</bdi> {children}
    </h1>
  );
  if (!actions) return heading;
  return (
    <div class="title">
      {heading}
      {actions}
    </div>
  );
}
