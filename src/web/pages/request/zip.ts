/** Downloads several files of a request as one archive, through a link that needs no token. */
import { CreateDownloadDocument } from '../../../generated/operations.js';
import { useAction } from '../../actions';
import { count, formatBytes } from '../../format';
import { at } from '../../graphql-client';
import { reasonOf, save } from '../../parts/download';
import { useToast } from '../../parts/toast';

/** Maximum number of files in an archive, as the gateway sets it. */
export const MAX_ZIPPED = 10_000;

interface Zip {
  isRunning: boolean;
  problem: string | undefined;
  /** @param paths logical paths of the files. Default: all files of the request that are on disk */
  start(paths?: string[]): Promise<void>;
}

export function useZip(requestId: number): Zip {
  const { run, isRunning, problem } = useAction();
  const toast = useToast();
  const start = async (paths?: string[]) => {
    const created = (await run(CreateDownloadDocument, { input: { requestId, ...(paths && { paths }) } }))?.result;
    if (!created?.value) return;
    const url = at(created.value.slice(1));
    const why = await findProblem(url);
    if (why !== undefined) return toast(why, { tone: 'bad' });
    save(url, `request-${requestId}.zip`);
    const skipped = created.skippedCount ? ` ${count(created.skippedCount, 'file')} cannot be downloaded.` : '';
    toast(`Downloading ${count(created.fileCount ?? 0, 'file')}, ${formatBytes(created.bytes ?? 0n)}.${skipped}`);
  };
  return { isRunning, problem, start };
}

/** Checks whether a link works, without using it. @returns the error message, if any */
async function findProblem(url: string): Promise<string | undefined> {
  // a redirect leads to the gateway that can read the files
  const answer = await fetch(`${url}?check`, { redirect: 'manual' }).catch(() => undefined);
  if (!answer) return 'The gateway cannot be reached.';
  return answer.ok || answer.type === 'opaqueredirect' ? undefined : await reasonOf(answer);
}
