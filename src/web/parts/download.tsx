import { useState } from 'preact/hooks';
import { at, sentHeaders } from '../client';
import { isSignedIn } from '../session';
import { Refused } from './problem';

/**
 * The bytes of a restored file. Whether they may be read is seen only when they are asked for, so that the first of them are asked for first:
 * a browser that saves what it is told by a link says nothing of why it failed. A link shows no token; who is signed in has the page fetch.
 */
export function Download({ bytesPath, path }: { bytesPath: string; path: string }) {
  const [why, setWhy] = useState<string>();
  const [isAsked, setAsked] = useState(false);
  const name = path.slice(path.lastIndexOf('/') + 1);
  const url = at(bytesPath.slice(1));
  const download = async () => {
    setAsked(true);
    setWhy(undefined);
    const saving = isSignedIn() ? saveFetched(url, name) : saveLinked(url, name);
    setWhy(await saving.catch(() => 'The gateway cannot be reached.'));
    setAsked(false);
  };
  return (
    <>
      <button type="button" class="plain" aria-label={`Download ${path}`} disabled={isAsked} onClick={download}>
        Download
      </button>
      <Refused why={why} />
    </>
  );
}

/** Of a file without bytes there is no first one. */
const NO_SUCH_RANGE = 416;

/** @returns why not */
async function saveLinked(url: string, name: string): Promise<string | undefined> {
  const answer = await fetch(url, { headers: { ...(await sentHeaders()), range: 'bytes=0-0' } });
  if (!answer.ok && answer.status !== NO_SUCH_RANGE) return await reasonOf(answer);
  save(url, name);
  return undefined;
}

/** The browser keeps what it fetches on its disk where it is large. @returns why not */
async function saveFetched(url: string, name: string): Promise<string | undefined> {
  const answer = await fetch(url, { headers: await sentHeaders() });
  if (!answer.ok) return await reasonOf(answer);
  const made = URL.createObjectURL(await answer.blob());
  save(made, name);
  setTimeout(() => URL.revokeObjectURL(made), 60_000); // it has been opened by then
  return undefined;
}

async function reasonOf(answer: Response): Promise<string> {
  const said = (await answer.json().catch(() => ({}))) as { detail?: string };
  return said.detail ?? `The gateway answered ${answer.status}.`;
}

function save(url: string, name: string): void {
  const link = document.createElement('a');
  link.href = url;
  link.download = name;
  link.click();
}
