/** Asks for the date until which the request keeps its files on disk. */
import { useId, useState } from 'preact/hooks';
import { UpdateRequestDocument } from '../../../generated/operations.js';
import { useAction } from '../../actions';
import { formatTime } from '../../format';
import { Button } from '../../parts/button';
import { Dialog } from '../../parts/dialog';
import { Refused } from '../../parts/problem';
import { isOver } from '../../parts/state';
import { useToast } from '../../parts/toast';
import type { ShownRequest } from './shown-request';

const DAY_MS = 86_400_000;
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
  const fieldId = useId();
  const hasEnded = isOver(state);
  // count from the present expiry, or from now if the request has ended
  const from = Math.max(Date.now(), Date.parse(retention));
  const [date, setDate] = useState(() => toDate(from + DEFAULT_DAYS * DAY_MS));
  const chosen = atTimeOf(date, from);
  const reason =
    chosen === undefined ? 'Choose a date.' : chosen <= Date.now() ? 'Choose a date in the future.' : undefined;
  const extend = async () => {
    if (chosen === undefined) return;
    const until = new Date(chosen).toISOString();
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
          <Button onClick={onClose}>Back</Button>
          <Button kind="main" onClick={extend} disabledReason={action.isRunning ? 'Saving …' : reason}>
            {name}
          </Button>
        </>
      }
    >
      <p>
        {hasEnded
          ? 'The quota is charged for the files again.'
          : `The files stay on disk until ${formatTime(retention)} now.`}
      </p>
      <div class="choices">
        <label for={fieldId}>
          Keep the files until
          <input
            id={fieldId}
            type="date"
            value={date}
            min={toDate(Date.now())}
            required
            onInput={(event) => setDate(event.currentTarget.value)}
          />
        </label>
        {CHOICES.map((days) => (
          <Button key={days} onClick={() => setDate(toDate(from + days * DAY_MS))}>
            {hasEnded ? `For ${days} days` : `${days} days longer`}
          </Button>
        ))}
      </div>
      <Refused why={action.problem} />
    </Dialog>
  );
}

/** Returns the local date of a time, as a date field shows it. */
function toDate(at: number): string {
  const time = new Date(at);
  const two = (value: number) => String(value).padStart(2, '0');
  return `${time.getFullYear()}-${two(time.getMonth() + 1)}-${two(time.getDate())}`;
}

/** Returns the time on a date with the same time of day as another time; undefined if the date is incomplete. */
function atTimeOf(date: string, other: number): number | undefined {
  const [year, month, day] = date.split('-').map(Number);
  if (year === undefined || month === undefined || day === undefined || !(year > 0)) return undefined;
  const time = new Date(other);
  time.setFullYear(year, month - 1, day);
  return time.getTime();
}
