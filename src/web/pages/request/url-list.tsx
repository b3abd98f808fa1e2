/** Shows how to download files with wget, and saves the list of their URLs. */

import { count } from '../../format';
import { at } from '../../graphql-client';
import { Button } from '../../parts/button';
import { Dialog } from '../../parts/dialog';
import { save } from '../../parts/download';
import { Save } from '../../parts/icons';
import type { ShownFile } from './shown-request';

const NAME = 'list.txt';

/** Milliseconds after which the browser has saved the list. */
const SAVED_MS = 60_000;

const COMMAND = `wget --header="Authorization: Bearer $TOKEN" -x -i ${NAME}`;

interface UrlListProps {
  requestId: number;
  files: readonly ShownFile[];
  onClose(): void;
}

export function UrlList({ requestId, files, onClose }: UrlListProps) {
  const urls = files.flatMap(({ file }) => (file.downloadPath ? at(file.downloadPath.slice(1)) : []));
  const saveList = () => {
    const made = URL.createObjectURL(new Blob([`${urls.join('\n')}\n`], { type: 'text/plain' }));
    save(made, NAME);
    setTimeout(() => URL.revokeObjectURL(made), SAVED_MS);
  };
  return (
    <Dialog
      title={`Download ${count(urls.length, 'file')} of request ${requestId} with wget`}
      onClose={onClose}
      footer={
        <Button kind="main" icon={Save} onClick={saveList}>
          Save {NAME}
        </Button>
      }
    >
      <p>Save the list, set the variable TOKEN to your token, and run this command in the folder of the list:</p>
      <pre class="command">{COMMAND}</pre>
      <p class="hint">
        wget creates the folders of the files. Add <code>-c</code> to continue an interrupted download.
      </p>
      <label>
        URLs
        <textarea readOnly rows={6} value={urls.join('\n')} />
      </label>
    </Dialog>
  );
}
