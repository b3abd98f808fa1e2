import { useState } from 'preact/hooks';
import { at, sentHeaders } from '../graphql-client';
import { isSignedIn } from '../sign-in/session';
import { Refused } from './problem';

/**
 * Downloads a restored file. First requests only the first byte, because a browser that saves a link does not show why
 * the download failed. For a signed-in user, the page itself fetches the whole file, because a link does not send a
 * token.
 */
export function Download({ bytesPath, path }: { bytesPath: string; path: string }) {
  const [why, setWhy] = useState<string>();
  const [isRunning, setRunning] = useState(false);
  const name = path.slice(path.lastIndexOf('/') + 1);
  const url = at(bytesPath.slice(1));
  const download = async () => {
    setRunning(true);
    setWhy(undefined);
    const saving = isSignedIn() ? saveFetched(url, name) : saveLinked(url, name);
    setWhy(await saving.catch(() => 'The gateway cannot be reached.'));
    setRunning(false);
  };
  return (
    <>
      <button
        type="button"
        class="button plain"
        aria-label={`Download ${path}`}
        disabled={isRunning}
        onClick={download}
      >
        Download
      </button>
      <Refused why={why} />
    </>
  );
}

/** HTTP status with which the gateway answers a request for the first byte of an empty file. */
const NO_SUCH_RANGE = 416;

/** @returns the error message, if any */
async function saveLinked(url: string, name: string): Promise<string | undefined> {
  const answer = await fetch(url, { headers: { ...(await sentHeaders()), range: 'bytes=0-0' } });
  if (!answer.ok && answer.status !== NO_SUCH_RANGE) return await reasonOf(answer);
  save(url, name);
  return undefined;
}

/** Fetches a file and saves it. @returns the error message, if any */
async function saveFetched(url: string, name: string): Promise<string | undefined> {
  const answer = await fetch(url, { headers: await sentHeaders() });
  if (!answer.ok) return await reasonOf(answer);
  const made = URL.createObjectURL(await answer.blob());
  save(made, name);
  setTimeout(() => URL.revokeObjectURL(made), 60_000);
  return undefined;
}

/** Returns the message of an error response. */
export async function reasonOf(answer: Response): Promise<string> {
  const body = (await answer.json().catch(() => ({}))) as { detail?: string };
  return body.detail ?? `The gateway returned status ${answer.status}.`;
}

/** Saves the content of a URL as a file. */
export function save(url: string, name: string): void {
  const link = document.createElement('a');
  link.href = url;
  link.download = name;
  link.click();
}
