/** Explains to a user why a file failed or is delayed, and what the user can do. */

import { describeFailure } from '../../../core/text/failures.js';
import { RetryRequestDocument } from '../../../generated/operations.js';
import { useAction } from '../../actions';
import { Button } from '../../parts/button';
import { RotateCw } from '../../parts/icons';
import { Moment } from '../../parts/moment';
import { Refused } from '../../parts/problem';
import { useToast } from '../../parts/toast';
import type { ShownFile, ShownRequest } from './shown-request';

interface FileFailureProps {
  request: ShownRequest;
  file: ShownFile;
  isReadOnly: boolean;
  again(): void;
}

export function FileFailure({ request, file, isReadOnly, again }: FileFailureProps) {
  const { state, lastErrorClass, lastError, nextTryAt } = file;
  if (lastErrorClass === null && lastError === null && nextTryAt === null) return null;
  if (lastErrorClass === null)
    return (
      <div class="file-failure">
        {lastError && <p class="why">{lastError}</p>}
        {nextTryAt && <NextTry at={nextTryAt} />}
      </div>
    );
  const { what, advice, isRetryUseful } = describeFailure(lastErrorClass);
  const hasFailed = state === 'FAILED';
  return (
    <div class="file-failure">
      {what} {hasFailed ? advice : 'Tapegate tries again.'}{' '}
      {hasFailed && isRetryUseful && !isReadOnly && <RetryFile request={request} file={file} again={again} />}
      {nextTryAt && <NextTry at={nextTryAt} />}
      {lastError && (
        <details>
          <summary>Details</summary>
          <p class="why">
            {lastErrorClass}: {lastError}
          </p>
        </details>
      )}
    </div>
  );
}

const NextTry = ({ at }: { at: string }) => (
  <p class="why">
    Next try <Moment at={at} side="ahead" />
  </p>
);

function RetryFile({ request: { requestId }, file: { file }, again }: Omit<FileFailureProps, 'isReadOnly'>) {
  const action = useAction();
  const toast = useToast();
  const retry = async () => {
    if (!(await action.run(RetryRequestDocument, { input: { requestId, paths: [file.path] } }))) return;
    toast(`Retrying ${file.path}.`);
    again();
  };
  return (
    <>
      <Button kind="plain" icon={RotateCw} label={`Retry ${file.path}`} onClick={retry}>
        Retry
      </Button>
      <Refused why={action.problem} />
    </>
  );
}
