import { useState } from 'preact/hooks';

/**
 * Copies a text to the clipboard. On a page without TLS, browsers forbid clipboard access, so the button shows the text
 * instead.
 */
export function CopyButton({ text, name }: { text: string; name: string }) {
  const [outcome, setOutcome] = useState<'copied' | 'shown'>();
  const copy = async () => {
    const isCopied = await navigator.clipboard?.writeText(text).then(
      () => true,
      () => false,
    );
    setOutcome(isCopied ? 'copied' : 'shown');
  };
  return (
    <>
      <button type="button" onClick={copy}>
        {name}
      </button>
      <span role="status">{outcome === 'copied' && 'Copied.'}</span>
      {outcome === 'shown' && <textarea readOnly aria-label={name} value={text} rows={6} />}
    </>
  );
}
