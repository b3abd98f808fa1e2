/** Short messages about finished changes, which disappear after some seconds. */
import { Action, Close, Description, Provider, Root, Viewport } from '@radix-ui/react-toast';
import { type ComponentChildren, createContext } from 'preact';
import { useCallback, useContext, useState } from 'preact/hooks';
import { CircleCheck, TriangleAlert, X } from './icons';

interface Message {
  id: number;
  text: string;
  tone: 'good' | 'bad';
  /** A link in the message, such as a link to the new request. */
  link: { text: string; href: string } | undefined;
}

type ShowToast = (text: string, options?: Partial<Pick<Message, 'tone' | 'link'>>) => void;

const ToastContext = createContext<ShowToast>(() => {});

/** Returns a function that shows a message. A message of tone `bad` stays until the user closes it. */
export const useToast = (): ShowToast => useContext(ToastContext);

const SHOWN_MS = 6000;

let lastId = 0;

export function ToastProvider({ children }: { children: ComponentChildren }) {
  const [messages, setMessages] = useState<readonly Message[]>([]);
  const show: ShowToast = useCallback((text, { tone = 'good', link } = {}) => {
    setMessages((before) => [...before, { id: ++lastId, text, tone, link }]);
  }, []);
  const remove = (id: number) => setMessages((before) => before.filter((message) => message.id !== id));
  return (
    <ToastContext.Provider value={show}>
      <Provider label="Message" duration={SHOWN_MS} swipeDirection="right">
        {children}
        {messages.map((message) => (
          <Toast key={message.id} message={message} onClose={() => remove(message.id)} />
        ))}
        <Viewport class="toasts" />
      </Provider>
    </ToastContext.Provider>
  );
}

function Toast({ message: { text, tone, link }, onClose }: { message: Message; onClose(): void }) {
  const Icon = tone === 'good' ? CircleCheck : TriangleAlert;
  return (
    <Root
      class={`toast ${tone}`}
      duration={tone === 'good' ? SHOWN_MS : Number.POSITIVE_INFINITY}
      onOpenChange={(isOpen: boolean) => isOpen || onClose()}
    >
      <Icon class="icon" size={16} aria-hidden="true" />
      <Description asChild>
        <div>
          {text}{' '}
          {link && (
            <Action altText={link.text} asChild>
              <a href={link.href}>{link.text}</a>
            </Action>
          )}
        </div>
      </Description>
      <Close class="button bare" aria-label="Close message">
        <X class="icon" size={14} aria-hidden="true" />
      </Close>
    </Root>
  );
}
