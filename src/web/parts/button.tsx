/** A button. A disabled button stays in the tab order and shows why it is disabled. */

import type { ComponentChildren, JSX } from 'preact';
import { useId } from 'preact/hooks';
import type { IconType } from './icons';

interface ButtonProps extends Omit<JSX.IntrinsicElements['button'], 'label' | 'icon' | 'children' | 'class'> {
  /** `main` for the most important action of a view, `plain` for a link-like action, `bare` for an icon. */
  kind?: 'normal' | 'main' | 'danger' | 'plain' | 'bare';
  icon?: IconType;
  /** Name for screen readers, and the tooltip of a button that shows only an icon. */
  label?: string;
  /** Why the button is disabled; undefined if it is enabled. */
  disabledReason?: string | undefined;
  children?: ComponentChildren;
}

export function Button({ kind = 'normal', icon: Icon, label, disabledReason, children, ...rest }: ButtonProps) {
  const reasonId = useId();
  const isIcon = children === undefined;
  const props = {
    type: 'button' as const,
    ...rest,
    class: `button ${kind}`,
    'aria-label': label,
    ...(isIcon && { title: label }),
    ...(disabledReason !== undefined && {
      'aria-disabled': true,
      'aria-describedby': reasonId,
      onClick: (event: Event) => event.preventDefault(),
    }),
  };
  const button = (
    <button {...props}>
      {Icon && <Icon class="icon" size={16} aria-hidden="true" />}
      {children}
    </button>
  );
  if (disabledReason === undefined) return button;
  return (
    <span class="reasoned">
      {button}
      <span role="tooltip" id={reasonId}>
        {disabledReason}
      </span>
    </span>
  );
}
