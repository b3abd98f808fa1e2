/** Asks for the date until which the request keeps its files on disk. */
import { useState } from 'preact/hooks';
import { UpdateRequestDocument } from '../../../generated/operations.js';
import { useAction } from '../../actions';
import { formatTime } from '../../format';
import { Button } from '../../parts/button';
import { Dialog } from '../../parts/dialog';
import { Refused } from '../../parts/problem';
import { isOver } from '../../parts/state';
import { useToast } from '../../parts/toast';
import { dateIn, endOfDay, refuseDate, UntilField } from '../../parts/until-field';
import type { ShownRequest } from './shown-request';

const CHOICES = [7, 30, 90];
const DEFAULT_DAYS = 30;

interface ExtendDialogProps {
  request: ShownRequest;
  again(): void;
  onClose(): void;
}

export function ExtendDialog({ request: { requestId, retention, state }, again, onClose }: ExtendDialogProps) {
  const action = useAction();
  const toast = useToast();
  const hasEnded = isOver(state);
  // count from the present expiry, or from now if the request has ended
  const from = Math.max(Date.now(), Date.parse(retention));
  const [date, setDate] = useState(() => dateIn(DEFAULT_DAYS, from));
  const reason = refuseDate(date, hasEnded ? undefined : retention);
  const extend = async () => {
    const until = endOfDay(date)?.toISOString();
    if (until === undefined) return;
    if (!(await action.run(UpdateRequestDocument, { input: { requestId, retention: until } }))) return;
    toast(hasEnded ? `Request ${requestId} is active again.` : `Extended until ${formatTime(until)}.`);
    again();
    onClose();
  };
  const name = hasEnded ? 'Restore again' : 'Extend';
  return (
    <Dialog
      title={hasEnded ? `Restore the files of request ${requestId} again` : `Extend request ${requestId}`}
      onClose={onClose}
      footer={
        <>
          <Button onClick={onClose}>Cancel</Button>
          <Button kind="main" onClick={extend} disabledReason={action.isRunning ? 'Saving …' : reason}>
            {name}
          </Button>
        </>
      }
    >
      <p>
        {hasEnded
          ? 'The quota is charged for the files again.'
          : `The files are currently kept until ${formatTime(retention)}.`}
      </p>
      <UntilField
        label="Keep the files until the end of"
        value={date}
        problem={reason}
        hint="The time zone is the one of this browser"
        onChange={setDate}
      />
      <div class="choices">
        {CHOICES.map((days) => (
          <Button key={days} onClick={() => setDate(dateIn(days, from))}>
            {hasEnded ? `For ${days} days` : `${days} days longer`}
          </Button>
        ))}
      </div>
      <Refused why={action.problem} />
    </Dialog>
  );
}
