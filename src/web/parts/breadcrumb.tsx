/** Links to the parents of a page. */

import type { ComponentChildren } from 'preact';
import { ChevronRight } from './icons';

interface BreadcrumbProps {
  /** Name of the navigation for screen readers. */
  label: string;
  /** Parents of the current page, the outermost first. */
  parents: readonly { text: ComponentChildren; href: string }[];
  current: ComponentChildren;
}

export function Breadcrumb({ label, parents, current }: BreadcrumbProps) {
  return (
    <nav class="breadcrumb" aria-label={label}>
      <ol>
        {parents.map(({ text, href }) => (
          <li key={href}>
            <a href={href}>
              <bdi>{text}</bdi>
            </a>
            <ChevronRight class="icon" size={14} aria-hidden="true" />
          </li>
        ))}
        <li aria-current="page">
          <bdi>{current}</bdi>
        </li>
      </ol>
    </nav>
  );
}
