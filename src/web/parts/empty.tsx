import type { LucideIcon } from 'lucide-preact';
import type { ComponentChildren } from 'preact';

/** Shown instead of an empty list: says why the list is empty, and what the user can do. */
export function Empty({
  icon: Icon,
  title,
  children,
}: {
  icon: LucideIcon;
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
