/** Copies texts to the clipboard. On a page without TLS, browsers forbid clipboard access, so a dialog shows the text. */
import { useState } from 'preact/hooks';
import { Dialog } from '../../parts/dialog';
import { useToast } from '../../parts/toast';

interface Copied {
  /** @param what name of the text, such as `Link` */
  copy(what: string, text: string): Promise<void>;
  /** The text that could not be copied. */
  shown: { what: string; text: string } | undefined;
  close(): void;
}

export function useCopy(): Copied {
  const [shown, setShown] = useState<Copied['shown']>();
  const toast = useToast();
  return {
    shown,
    close: () => setShown(undefined),
    copy: async (what, text) => {
      const isCopied = await navigator.clipboard?.writeText(text).then(
        () => true,
        () => false,
      );
      if (isCopied) toast(`${what} copied.`);
      else setShown({ what, text });
    },
  };
}

export function TextDialog({ copied: { shown, close } }: { copied: Copied }) {
  if (!shown) return null;
  const { what, text } = shown;
  return (
    <Dialog title={what} onClose={close}>
      <p>The browser does not let this page use the clipboard. Select the text and copy it.</p>
      <textarea readOnly aria-label={what} value={text} rows={8} onFocus={(event) => event.currentTarget.select()} />
    </Dialog>
  );
}
