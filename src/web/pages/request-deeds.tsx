/** What can be done with a request that is there. */
import { useEffect, useRef, useState } from 'preact/hooks';
import {
  CancelRequestDocument,
  ReleaseFilesDocument,
  RetryRequestDocument,
  UpdateRequestDocument,
} from '../../generated/web-operations';
import { useCaller } from '../caller';
import { useDeed } from '../deeds';
import { CopyButton } from '../parts/copy-button';
import { Refused } from '../parts/problem';
import { isOver } from '../parts/state';
import type { ShownRequest } from './shown-request';

const DAY_MS = 86_400_000;
const DAYS = 30;

/** Logical paths are absolute: each of them has it. */
const IN_EVERY_PATH = '/';

interface RequestDeedsProps {
  request: ShownRequest;
  again(): void;
}

export function RequestDeeds({ request, again }: RequestDeedsProps) {
  const { isReadOnly } = useCaller();
  return (
    <div class="deeds">
      {!isReadOnly && <Changes request={request} again={again} />}
      <CopyButton text={location.href} name="Copy a link to it" />
    </div>
  );
}

function Changes({ request, again }: RequestDeedsProps) {
  const deed = useDeed();
  const [asked, setAsked] = useState<keyof typeof questions>();
  const { requestId: id, state } = request;
  const then = async (done: Promise<unknown>) => {
    if (await done) again();
    setAsked(undefined);
  };
  const extend = () => {
    const from = Math.max(Date.now(), Date.parse(request.retention));
    const retention = new Date(from + DAYS * DAY_MS).toISOString();
    return then(deed.run(UpdateRequestDocument, { input: { id, retention } }));
  };
  const retry = () => then(deed.run(RetryRequestDocument, { id }));
  const letGo = () => then(deed.run(ReleaseFilesDocument, { input: { id, match: IN_EVERY_PATH } }));
  const cancel = () => then(deed.run(CancelRequestDocument, { id }));
  const isLive = !isOver(state);
  return (
    <>
      {state !== 'CANCELLED' && (
        <button type="button" disabled={deed.isRunning} onClick={extend}>
          {isLive ? `Keep ${DAYS} days longer` : `Restore it again for ${DAYS} days`}
        </button>
      )}
      {request.filesFailed > 0 && isLive && (
        <button type="button" disabled={deed.isRunning} onClick={retry}>
          Try the failed ones again
        </button>
      )}
      {request.filesOnDisk > 0 && isLive && asked !== 'letGo' && (
        <button type="button" disabled={deed.isRunning} onClick={() => setAsked('letGo')}>
          Let its files go
        </button>
      )}
      {isLive && asked !== 'cancel' && (
        <button type="button" class="danger" disabled={deed.isRunning} onClick={() => setAsked('cancel')}>
          Cancel the request
        </button>
      )}
      {asked && isLive && (
        <Sure {...questions[asked]} onYes={asked === 'cancel' ? cancel : letGo} onNo={() => setAsked(undefined)} />
      )}
      <Refused why={deed.problem} />
    </>
  );
}

/** What cannot be taken back is asked for twice. */
const questions = {
  letGo: {
    question: 'Let all of its files go?',
    what: 'They leave the disk unless another request has them, and what it waits for is not restored. The request stays.',
    yes: 'Yes, let them go',
  },
  cancel: {
    question: 'Cancel the request?',
    what: 'It ends now, and its files leave the disk unless another request has them.',
    yes: 'Yes, cancel it',
  },
};

interface SureProps {
  question: string;
  what: string;
  yes: string;
  onYes(): void;
  onNo(): void;
}

function Sure({ question, what, yes, onYes, onNo }: SureProps) {
  const no = useRef<HTMLButtonElement>(null);
  // the button that was pressed is there no more, and with it the place of whoever has only keys
  useEffect(() => no.current?.focus(), []);
  return (
    <fieldset class="ask">
      <legend>{question}</legend>
      {what}
      <button type="button" class="danger" onClick={onYes}>
        {yes}
      </button>
      <button type="button" ref={no} onClick={onNo}>
        No
      </button>
    </fieldset>
  );
}
