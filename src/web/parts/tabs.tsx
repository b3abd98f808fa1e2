/** Tabs that show one of several panels. The page stores the chosen tab in the address. */
import { Content, List, Root, Trigger } from '@radix-ui/react-tabs';
import type { ComponentChildren } from 'preact';
import { formatNumber } from '../format';

export interface Tab {
  value: string;
  title: string;
  /** Number of items in the panel. */
  count?: number | undefined;
  content(): ComponentChildren;
}

interface TabsProps {
  label: string;
  tabs: readonly Tab[];
  value: string;
  onChoose(value: string): void;
}

export function Tabs({ label, tabs, value, onChoose }: TabsProps) {
  return (
    <Root value={value} onValueChange={onChoose} activationMode="manual">
      <List class="tabs" aria-label={label}>
        {tabs.map(({ value: name, title, count }) => (
          <Trigger key={name} value={name}>
            {title}
            {count !== undefined && <Tally count={count} />}
          </Trigger>
        ))}
      </List>
      {tabs.map(({ value: name, content }) => (
        <Content key={name} value={name} tabIndex={-1}>
          {name === value && content()}
        </Content>
      ))}
    </Root>
  );
}

/** A number beside a title. */
export const Tally = ({ count }: { count: number }) => <span class="tally">{formatNumber(count)}</span>;
