/**
 * Dialogs and drawers on the HTML element `dialog`, which keeps the focus inside, closes with Escape, and returns the
 * focus to the button that opened it.
 */
import { X } from 'lucide-preact';
import type { ComponentChildren } from 'preact';
import { useEffect, useId, useRef } from 'preact/hooks';
import { Button } from './button';

interface DialogProps {
  title: ComponentChildren;
  onClose(): void;
  /** Buttons at the end of the dialog. */
  footer?: ComponentChildren;
  /** A drawer covers the right side of the window, at its full height. */
  isDrawer?: boolean;
  children: ComponentChildren;
}

/** Shows a dialog while the component is rendered. */
export function Dialog({ title, onClose, footer, isDrawer = false, children }: DialogProps) {
  const dialog = useRef<HTMLDialogElement>(null);
  const titleId = useId();
  useEffect(() => {
    const opener = document.activeElement;
    dialog.current?.showModal();
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
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: without a tab index, keyboard users cannot scroll the text */}
      <div class="dialog-body" tabIndex={0}>
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
  isDangerous?: boolean;
  /** Why the change cannot be made now. */
  disabledReason?: string | undefined;
  onConfirm(): void;
  onClose(): void;
  children?: ComponentChildren;
}

/** Asks the user to confirm a change. */
export function Confirmation(props: ConfirmationProps) {
  const { title, action, isDangerous = false, disabledReason, onConfirm, onClose, children } = props;
  return (
    <Dialog
      title={title}
      onClose={onClose}
      footer={
        <>
          <Button onClick={onClose}>Back</Button>
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
