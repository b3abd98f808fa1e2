/** A button that opens a menu of actions. */
import { Content, Item, Root, Separator, Trigger } from '@radix-ui/react-dropdown-menu';
import type { ComponentChildren } from 'preact';
import { Ellipsis, type IconType } from './icons';

export interface MenuItem {
  text: string;
  icon?: IconType;
  isDangerous?: boolean;
  isChecked?: boolean;
  /** Why the action cannot be chosen now. */
  disabledReason?: string | undefined;
  onSelect(): void;
}

interface MenuProps {
  /** Name of the button for screen readers, such as `Actions for drive-1`. */
  label: string;
  /** Items of the menu; `null` is a line between two groups. */
  items: readonly (MenuItem | null)[];
  icon?: IconType;
  /** Visible text of the button. */
  children?: ComponentChildren;
}

export function Menu({ label, items, icon: Icon = Ellipsis, children }: MenuProps) {
  return (
    <Root modal={false}>
      {/* without a portal, so that the menu stays inside the landmarks of the page */}
      <Trigger class={`button ${children ? 'normal' : 'bare'}`} aria-label={label} title={label}>
        <Icon class="icon" size={16} aria-hidden="true" />
        {children}
      </Trigger>
      <Content class="menu" align="end" sideOffset={4} collisionPadding={8}>
        {items.map((item, index) =>
          item ? <MenuLine key={item.text} item={item} /> : <Separator key={index} asChild children={<hr />} />,
        )}
      </Content>
    </Root>
  );
}

function MenuLine({ item }: { item: MenuItem }) {
  const { text, icon: Icon, isDangerous, isChecked, disabledReason, onSelect } = item;
  return (
    <Item
      class={isDangerous ? 'danger' : undefined}
      disabled={disabledReason !== undefined}
      title={disabledReason}
      onSelect={onSelect}
      {...(isChecked !== undefined && { role: 'menuitemradio', 'aria-checked': isChecked })}
    >
      {Icon && <Icon class="icon" size={16} aria-hidden="true" />}
      {text}
      {isChecked && ' ✓'}
    </Item>
  );
}
