/** What can be done with a request that is there. */
import { useState } from 'preact/hooks';
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
import type { ShownRequest } from './request';

const DAY_MS = 86_400_000;

export function RequestDeeds({ request, again }: { request: ShownRequest; again: () => void }) {
  const { isReadOnly } = useCaller();
  const deed = useDeed();
  const [isAsked, setAsked] = useState(false);
  const id = request.requestId;
  const then = async (done: Promise<unknown>) => {
    if (await done) again();
    setAsked(false);
  };
  const extend = (days: number) => {
    const from = Math.max(Date.now(), Date.parse(request.retention));
    const retention = new Date(from + days * DAY_MS).toISOString();
    return then(deed.run(UpdateRequestDocument, { input: { id, retention } }));
  };
  const isOver = request.state === 'CANCELLED';
  return (
    <div class="deeds">
      {!isReadOnly && (
        <>
          {!isOver && (
            <button type="button" disabled={deed.isRunning} onClick={() => extend(30)}>
              Keep 30 days longer
            </button>
          )}
          {request.filesFailed > 0 && (
            <button
              type="button"
              disabled={deed.isRunning}
              onClick={() => then(deed.run(RetryRequestDocument, { id }))}
            >
              Try the failed ones again
            </button>
          )}
          {request.filesOnDisk > 0 && !isOver && (
            <button
              type="button"
              disabled={deed.isRunning}
              onClick={() => then(deed.run(ReleaseFilesDocument, { input: { id, match: '' } }))}
            >
              Let its files go
            </button>
          )}
          {!isOver && !isAsked && (
            <button type="button" class="danger" disabled={deed.isRunning} onClick={() => setAsked(true)}>
              Cancel the request
            </button>
          )}
          {isAsked && (
            <SureToCancel onYes={() => then(deed.run(CancelRequestDocument, { id }))} onNo={() => setAsked(false)} />
          )}
        </>
      )}
      <CopyButton text={location.href} name="Copy a link to it" />
      <Refused why={deed.problem} />
    </div>
  );
}

function SureToCancel({ onYes, onNo }: { onYes(): void; onNo(): void }) {
  return (
    <fieldset class="ask">
      <legend>Cancel the request?</legend>
      It ends now, and its files leave the disk.
      <button type="button" class="danger" onClick={onYes}>
        Yes, cancel it
      </button>
      <button type="button" onClick={onNo}>
        No
      </button>
    </fieldset>
  );
}
