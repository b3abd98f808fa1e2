/** The actions on a whole request: buttons for the likely ones, a menu for the others, and their dialogs. */

import { useState } from 'preact/hooks';
import {
  CancelRequestDocument,
  FirstDownloadDocument,
  ReleaseFilesDocument,
  RetryRequestDocument,
} from '../../../generated/operations.js';
import { useAction } from '../../actions';
import { count } from '../../format';
import { Button } from '../../parts/button';
import { Confirmation } from '../../parts/dialog';
import { CalendarPlus, Download, Link2, RotateCw, Undo2, XCircle } from '../../parts/icons';
import { Menu, type MenuItem } from '../../parts/menu';
import { Refused } from '../../parts/problem';
import { isOver } from '../../parts/state';
import { useToast } from '../../parts/toast';
import { useCaller } from '../../sign-in/caller';
import { useViewQuery } from '../../view-query';
import { TextDialog, useCopy } from './copy';
import { ExtendDialog } from './extend';
import type { ShownRequest } from './shown-request';
import { useZip } from './zip';

/** Search text that matches all paths, because every logical path contains a slash. */
const IN_EVERY_PATH = '/';

interface RequestActionsProps {
  request: ShownRequest;
  again(): void;
}

type Open = 'extend' | 'release' | 'cancel';

export function RequestActions({ request, again }: RequestActionsProps) {
  const { isReadOnly } = useCaller();
  const [open, setOpen] = useState<Open>();
  const { requestId, state, filesFailed, filesOnDisk } = request;
  const action = useAction();
  const toast = useToast();
  const copied = useCopy();
  const isLive = !isOver(state);
  const retry = async () => {
    if (!(await action.run(RetryRequestDocument, { input: { requestId } }))) return;
    toast(`Retrying ${count(filesFailed, 'file')}.`);
    again();
  };
  const items: (MenuItem | null)[] = [
    { text: 'Copy link', icon: Link2, onSelect: () => copied.copy('Link', location.href) },
    ...(isLive && !isReadOnly
      ? [
          {
            text: 'Release all files',
            icon: Undo2,
            disabledReason: filesOnDisk > 0 ? undefined : 'No file is on disk.',
            onSelect: () => setOpen('release'),
          },
          null,
          { text: 'Cancel request', icon: XCircle, isDangerous: true, onSelect: () => setOpen('cancel') },
        ]
      : []),
  ];
  return (
    <div class="actions">
      {isLive && filesFailed > 0 && !isReadOnly && (
        <Button
          kind="main"
          icon={RotateCw}
          disabledReason={action.isRunning ? 'Retrying …' : undefined}
          onClick={retry}
        >
          Retry failed files
        </Button>
      )}
      {isLive && filesOnDisk > 0 && <DownloadAll id={requestId} />}
      {!isReadOnly && state !== 'CANCELLED' && (
        <Button icon={CalendarPlus} onClick={() => setOpen('extend')}>
          {isLive ? 'Extend' : 'Restore again'}
        </Button>
      )}
      <Menu label="More actions" items={items} />
      <Refused why={action.problem} />
      {open === 'extend' && <ExtendDialog request={request} again={again} onClose={() => setOpen(undefined)} />}
      {open === 'release' && <ReleaseAll request={request} again={again} onClose={() => setOpen(undefined)} />}
      {open === 'cancel' && <Cancel request={request} again={again} onClose={() => setOpen(undefined)} />}
      <TextDialog copied={copied} />
    </div>
  );
}

/** Downloads all files on disk as one archive, if the site serves file contents. */
function DownloadAll({ id }: { id: number }) {
  const { data } = useViewQuery(FirstDownloadDocument, { id });
  const zip = useZip(id);
  if (!data?.request?.files.edges.some(({ node }) => node.file.downloadPath !== null)) return null;
  return (
    <>
      <Button icon={Download} disabledReason={zip.isRunning ? 'Preparing …' : undefined} onClick={() => zip.start()}>
        Download all
      </Button>
      <Refused why={zip.problem} />
    </>
  );
}

interface RequestDialogProps extends RequestActionsProps {
  onClose(): void;
}

function ReleaseAll({ request: { requestId, filesOnDisk }, again, onClose }: RequestDialogProps) {
  const action = useAction();
  const toast = useToast();
  const release = async () => {
    if (!(await action.run(ReleaseFilesDocument, { input: { requestId, match: IN_EVERY_PATH } }))) return;
    toast('Released all files.');
    again();
    onClose();
  };
  return (
    <Confirmation
      title={`Release all files of request ${requestId}?`}
      action="Release all files"
      isDangerous
      disabledReason={action.isRunning ? 'Releasing …' : undefined}
      onConfirm={release}
      onClose={onClose}
    >
      <p>
        Tapegate removes {count(filesOnDisk, 'file')} from disk, unless another request needs{' '}
        {filesOnDisk === 1 ? 'it' : 'them'}. Waiting files are not restored. The request stays open.
      </p>
      <Refused why={action.problem} />
    </Confirmation>
  );
}

function Cancel({ request: { requestId }, again, onClose }: RequestDialogProps) {
  const action = useAction();
  const toast = useToast();
  const cancel = async () => {
    if (!(await action.run(CancelRequestDocument, { id: requestId }))) return;
    toast(`Cancelled request ${requestId}.`);
    again();
    onClose();
  };
  return (
    <Confirmation
      title={`Cancel request ${requestId}?`}
      action="Cancel request"
      back="Keep request"
      isDangerous
      disabledReason={action.isRunning ? 'Cancelling …' : undefined}
      onConfirm={cancel}
      onClose={onClose}
    >
      <p>The request ends now. Its files are removed from disk unless another request needs them.</p>
      <Refused why={action.problem} />
    </Confirmation>
  );
}
