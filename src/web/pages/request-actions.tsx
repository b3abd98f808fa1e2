/** Shows the buttons with which the user changes a request. */
import { useEffect, useRef, useState } from 'preact/hooks';
import {
  CancelRequestDocument,
  ReleaseFilesDocument,
  RetryRequestDocument,
  UpdateRequestDocument,
} from '../../generated/operations.js';
import { useAction } from '../actions';
import { CopyButton } from '../parts/copy-button';
import { Refused } from '../parts/problem';
import { isOver } from '../parts/state';
import { useCaller } from '../sign-in/caller';
import type { ShownRequest } from './shown-request';

const DAY_MS = 86_400_000;
const DAYS = 30;

/** Search text that matches all paths, because every logical path contains a slash. */
const IN_EVERY_PATH = '/';

interface RequestActionsProps {
  request: ShownRequest;
  again(): void;
}

export function RequestActions({ request, again }: RequestActionsProps) {
  const { isReadOnly } = useCaller();
  return (
    <div class="actions">
      {!isReadOnly && <Changes request={request} again={again} />}
      <CopyButton text={location.href} name="Copy link" />
    </div>
  );
}

function Changes({ request, again }: RequestActionsProps) {
  const action = useAction();
  const [confirming, setConfirming] = useState<keyof typeof confirmations>();
  const { requestId, state } = request;
  const then = async (done: Promise<unknown>) => {
    if (await done) again();
    setConfirming(undefined);
  };
  const extend = () => {
    const from = Math.max(Date.now(), Date.parse(request.retention));
    const retention = new Date(from + DAYS * DAY_MS).toISOString();
    return then(action.run(UpdateRequestDocument, { input: { requestId, retention } }));
  };
  const retry = () => then(action.run(RetryRequestDocument, { input: { requestId } }));
  const release = () => then(action.run(ReleaseFilesDocument, { input: { requestId, match: IN_EVERY_PATH } }));
  const cancel = () => then(action.run(CancelRequestDocument, { id: requestId }));
  const isLive = !isOver(state);
  return (
    <>
      {state !== 'CANCELLED' && (
        <button type="button" class="button" disabled={action.isRunning} onClick={extend}>
          {isLive ? `Extend by ${DAYS} days` : `Restore again for ${DAYS} days`}
        </button>
      )}
      {request.filesFailed > 0 && isLive && (
        <button type="button" class="button" disabled={action.isRunning} onClick={retry}>
          Retry failed files
        </button>
      )}
      {request.filesOnDisk > 0 && isLive && confirming !== 'release' && (
        <button type="button" class="button" disabled={action.isRunning} onClick={() => setConfirming('release')}>
          Release files
        </button>
      )}
      {isLive && confirming !== 'cancel' && (
        <button type="button" class="button danger" disabled={action.isRunning} onClick={() => setConfirming('cancel')}>
          Cancel request
        </button>
      )}
      {confirming && isLive && (
        <Confirmation
          {...confirmations[confirming]}
          onYes={confirming === 'cancel' ? cancel : release}
          onNo={() => setConfirming(undefined)}
        />
      )}
      <Refused why={action.problem} />
    </>
  );
}

const confirmations = {
  release: {
    question: 'Release all files?',
    what: 'The files are removed from disk unless another request needs them. Waiting files are not restored. The request remains.',
    yes: 'Yes, release them',
  },
  cancel: {
    question: 'Cancel the request?',
    what: 'The request ends now. Its files are removed from disk unless another request needs them.',
    yes: 'Yes, cancel it',
  },
};

interface ConfirmationProps {
  question: string;
  what: string;
  yes: string;
  onYes(): void;
  onNo(): void;
}

function Confirmation({ question, what, yes, onYes, onNo }: ConfirmationProps) {
  const no = useRef<HTMLButtonElement>(null);
  // move the keyboard focus to the button `no`, because the dashboard has removed the button that the user pressed
  useEffect(() => no.current?.focus(), []);
  return (
    <fieldset class="confirmation">
      <legend>{question}</legend>
      {what}
      <button type="button" class="button danger" onClick={onYes}>
        {yes}
      </button>
      <button type="button" class="button" ref={no} onClick={onNo}>
        No
      </button>
    </fieldset>
  );
}
