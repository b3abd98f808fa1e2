/**
 * Dialogs and drawers on the HTML element `dialog`, which keeps the focus inside, closes with Escape, and returns the
 * focus to the button that opened it.
 */

import type { ComponentChildren } from 'preact';
import { useEffect, useId, useLayoutEffect, useRef, useState } from 'preact/hooks';
import { Button } from './button';
import { X } from './icons';

interface DialogProps {
  title: ComponentChildren;
  onClose(): void;
  /** Buttons at the end of the dialog. */
  footer?: ComponentChildren;
  /** A drawer covers the right side of the window, at its full height. */
  isDrawer?: boolean;
  children: ComponentChildren;
}

const FIELDS = 'input, select, textarea';

/** Focuses the first field that the user can fill in, or else the first button of the footer. */
function focusFirst(dialog: HTMLDialogElement): void {
  const body = dialog.querySelector('.dialog-body');
  const isFilledIn = (field: Element) => !field.matches('[readonly], :disabled');
  const field = [...(body?.querySelectorAll<HTMLElement>(FIELDS) ?? [])].find(isFilledIn);
  const first =
    field ?? dialog.querySelector<HTMLElement>('.dialog-foot button') ?? body?.querySelector<HTMLElement>(FIELDS);
  first?.focus();
}

/** Shows a dialog while the component is rendered. */
export function Dialog({ title, onClose, footer, isDrawer = false, children }: DialogProps) {
  const dialog = useRef<HTMLDialogElement>(null);
  const titleId = useId();
  const [hasField, setHasField] = useState(true);
  useLayoutEffect(() => setHasField(dialog.current?.querySelector(`.dialog-body :is(${FIELDS})`) != null));
  useEffect(() => {
    const opener = document.activeElement;
    dialog.current?.showModal();
    if (dialog.current) focusFirst(dialog.current);
    return () => {
      if (opener instanceof HTMLElement && opener.isConnected) opener.focus();
    };
  }, []);
  return (
    // biome-ignore lint/a11y/useKeyWithClickEvents: Escape closes the dialog, and the event `cancel` reports it
    <dialog
      ref={dialog}
      class={isDrawer ? 'drawer' : undefined}
      aria-labelledby={titleId}
      onCancel={(event) => {
        event.preventDefault();
        onClose();
      }}
      onClick={(event) => event.target === dialog.current && onClose()}
    >
      <div class="dialog-head">
        <h2 id={titleId}>{title}</h2>
        <Button kind="bare" icon={X} label="Close" onClick={onClose} />
      </div>
      {/* without a tab index, keyboard users cannot scroll a text without fields */}
      <div class="dialog-body" tabIndex={hasField ? undefined : 0}>
        {children}
      </div>
      {footer && <div class="dialog-foot">{footer}</div>}
    </dialog>
  );
}

export const Drawer = (props: Omit<DialogProps, 'isDrawer'>) => <Dialog {...props} isDrawer />;

interface ConfirmationProps {
  title: string;
  /** Text of the button that makes the change, such as `Cancel request`. */
  action: string;
  /** Text of the button that closes the dialog without the change. */
  back?: string;
  isDangerous?: boolean;
  /** Why the change cannot be made now. */
  disabledReason?: string | undefined;
  onConfirm(): void;
  onClose(): void;
  children?: ComponentChildren;
}

/** Asks the user to confirm a change. */
export function Confirmation(props: ConfirmationProps) {
  const { title, action, back = 'Cancel', isDangerous = false, disabledReason, onConfirm, onClose, children } = props;
  return (
    <Dialog
      title={title}
      onClose={onClose}
      footer={
        <>
          <Button onClick={onClose}>{back}</Button>
          <Button kind={isDangerous ? 'danger' : 'main'} onClick={onConfirm} disabledReason={disabledReason}>
            {action}
          </Button>
        </>
      }
    >
      {children}
    </Dialog>
  );
}
