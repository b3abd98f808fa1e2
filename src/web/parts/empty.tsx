import type { ComponentChildren } from 'preact';
import type { IconType } from './icons';

/** Shown instead of an empty list: says why the list is empty, and what the user can do. */
export function Empty({
  icon: Icon,
  title,
  children,
}: {
  icon: IconType;
  title: string;
  children?: ComponentChildren;
}) {
  return (
    <div class="empty">
      <Icon class="icon" size={32} aria-hidden="true" />
      <h2>{title}</h2>
      {children}
    </div>
  );
}
