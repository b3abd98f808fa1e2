import type { ComponentChildren } from 'preact';
import type { IconType } from './icons';

/** Meaning of a badge's colour. The text of the badge says the same in words. */
export type Tone = 'good' | 'bad' | 'wait' | 'info' | 'quiet';

/** A short text on a coloured ground, such as the state of a request. */
export function Badge({ tone, icon: Icon, children }: { tone: Tone; icon?: IconType; children: ComponentChildren }) {
  return (
    <span class={`badge ${tone}`}>
      {Icon && <Icon class="icon" size={12} aria-hidden="true" />}
      {children}
    </span>
  );
}
