/** The bar with the actions on the selected files, and its dialogs. */
import { useClient } from '@urql/preact';
import { useState } from 'preact/hooks';
import { ReleaseFilesDocument, type RequestFileState, RetryRequestDocument } from '../../../generated/operations.js';
import { useAction } from '../../actions';
import { count, formatBytes, formatNumber } from '../../format';
import { Button } from '../../parts/button';
import { Confirmation } from '../../parts/dialog';
import { Copy, FileDown, ListEnd, RotateCw, Undo2, X } from '../../parts/icons';
import { Refused } from '../../parts/problem';
import type { RowSelection } from '../../parts/selection';
import { isOver } from '../../parts/state';
import { useToast } from '../../parts/toast';
import { useCaller } from '../../sign-in/caller';
import { readAllFiles } from './all-files';
import { TextDialog, useCopy } from './copy';
import type { ShownFile, ShownRequest } from './shown-request';
import { UrlList } from './url-list';
import { MAX_ZIPPED, useZip } from './zip';

interface SelectedFilesProps {
  request: ShownRequest;
  selection: RowSelection;
  /** The files that the view has shown so far, by path. */
  known: Map<string, ShownFile>;
  /** Filter of the list, if it has files on other pages. */
  more: { states: RequestFileState[]; match: string } | undefined;
  again(): void;
}

export function SelectedFiles(props: SelectedFilesProps) {
  const { request, selection, known, more, again } = props;
  const { isReadOnly } = useCaller();
  const files = [...selection.chosen].flatMap((path) => known.get(path) ?? []);
  if (files.length === 0) return null;
  const bytes = files.reduce((sum, { size }) => sum + size, 0n);
  return (
    <section class="selection-bar" aria-label="Selected files">
      <strong role="status">
        {count(files.length, 'file')} selected, {formatBytes(bytes)}
      </strong>
      {more && <SelectAll {...props} more={more} />}
      {!isOver(request.state) && !isReadOnly && (
        <Changes request={request} files={files} again={again} clear={selection.clear} />
      )}
      <Transfers request={request} files={files} />
      <Button kind="bare" icon={X} label="Clear selection" onClick={selection.clear} />
    </section>
  );
}

function SelectAll({
  request,
  selection,
  known,
  more,
}: SelectedFilesProps & { more: { states: RequestFileState[]; match: string } }) {
  const client = useClient();
  const [number, setNumber] = useState<number>();
  const toast = useToast();
  const isUnfiltered = more.match === '' && more.states.length > 1;
  const selectAll = async () => {
    setNumber(0);
    try {
      const files = await readAllFiles(client, { id: request.requestId, ...more }, setNumber);
      for (const file of files) known.set(file.file.path, file);
      selection.choose(files.map(({ file }) => file.path));
    } catch (error) {
      toast(error instanceof Error ? error.message : 'The files cannot be read.', { tone: 'bad' });
    }
    setNumber(undefined);
  };
  return (
    <Button
      kind="plain"
      onClick={selectAll}
      disabledReason={number === undefined ? undefined : `${formatNumber(number)} files read …`}
    >
      {isUnfiltered ? `Select all ${formatNumber(request.filesTotal)} files` : 'Select all matching files'}
    </Button>
  );
}

interface ChangesProps {
  request: ShownRequest;
  files: readonly ShownFile[];
  again(): void;
  clear(): void;
}

function Changes({ request: { requestId }, files, again, clear }: ChangesProps) {
  const [isReleasing, setReleasing] = useState(false);
  const action = useAction();
  const toast = useToast();
  const failed = files.filter(({ state }) => state === 'FAILED');
  const retry = async () => {
    const paths = failed.map(({ file }) => file.path);
    if (!(await action.run(RetryRequestDocument, { input: { requestId, paths } }))) return;
    toast(`Retrying ${count(failed.length, 'file')}.`);
    clear();
    again();
  };
  const release = async () => {
    const paths = files.map(({ file }) => file.path);
    if (!(await action.run(ReleaseFilesDocument, { input: { requestId, paths } }))) return;
    toast(`Released ${count(files.length, 'file')}.`);
    setReleasing(false);
    clear();
    again();
  };
  const busy = action.isRunning ? 'Saving …' : undefined;
  return (
    <>
      <Button icon={Undo2} onClick={() => setReleasing(true)} disabledReason={busy}>
        Release
      </Button>
      <Button
        icon={RotateCw}
        onClick={retry}
        disabledReason={busy ?? (failed.length > 0 ? undefined : 'None of the selected files has failed.')}
      >
        Retry
      </Button>
      {!isReleasing && <Refused why={action.problem} />}
      {isReleasing && (
        <Confirmation
          title={`Release ${count(files.length, 'file')}?`}
          action={`Release ${count(files.length, 'file')}`}
          isDangerous
          disabledReason={busy}
          onConfirm={release}
          onClose={() => setReleasing(false)}
        >
          <p>
            The files are removed from disk unless another request needs them. Waiting files are not restored. The other
            files of the request stay.
          </p>
          <Refused why={action.problem} />
        </Confirmation>
      )}
    </>
  );
}

function Transfers({ request: { requestId }, files }: Pick<ChangesProps, 'request' | 'files'>) {
  const [isListing, setListing] = useState(false);
  const copied = useCopy();
  const zip = useZip(requestId);
  const served = files.filter(({ file }) => file.downloadPath !== null);
  const none = served.length > 0 ? undefined : 'None of the selected files can be downloaded now.';
  const tooMany =
    served.length > MAX_ZIPPED
      ? `An archive contains at most ${formatNumber(MAX_ZIPPED)} files, not ${formatNumber(served.length)}.`
      : undefined;
  const copy = () => copied.copy('Paths', files.map(({ file }) => file.restoredPath ?? file.path).join('\n'));
  return (
    <>
      <Button icon={Copy} onClick={copy}>
        Copy paths
      </Button>
      <Button
        icon={FileDown}
        onClick={() => zip.start(served.map(({ file }) => file.path))}
        disabledReason={none ?? tooMany ?? (zip.isRunning ? 'Preparing …' : undefined)}
      >
        Download as zip
      </Button>
      <Button icon={ListEnd} onClick={() => setListing(true)} disabledReason={none}>
        wget list
      </Button>
      <Refused why={zip.problem} />
      {isListing && <UrlList requestId={requestId} files={served} onClose={() => setListing(false)} />}
      <TextDialog copied={copied} />
    </>
  );
}
