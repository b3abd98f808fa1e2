import { useState } from 'preact/hooks';

/** Over plain HTTP browsers give no clipboard: the text is shown then, to be copied by hand. */
export function CopyButton({ text, name }: { text: string; name: string }) {
  const [told, setTold] = useState<'copied' | 'shown'>();
  const copy = async () => {
    const isCopied = await navigator.clipboard?.writeText(text).then(
      () => true,
      () => false,
    );
    setTold(isCopied ? 'copied' : 'shown');
  };
  return (
    <>
      <button type="button" onClick={copy}>
        {name}
      </button>
      <span role="status">{told === 'copied' && 'Copied.'}</span>
      {told === 'shown' && <textarea readOnly aria-label={name} value={text} rows={6} />}
    </>
  );
}
