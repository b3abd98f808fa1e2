/**
 * Shows whether an object, such as a drive or a disk, is in service. Operators get buttons to suspend, drain or resume
 * the object. Suspending requires a reason.
 */
import { useState } from 'preact/hooks';
import {
  ResumeDocument,
  SuspendDocument,
  type SuspensionKind,
  type SuspensionMode,
} from '../../generated/operations.js';
import { useAction } from '../actions';
import { useCaller } from '../sign-in/caller';
import { Refused } from './problem';

interface ServiceProps {
  kind: SuspensionKind;
  name: string;
  suspension: { mode: SuspensionMode; reason: string | null } | null | undefined;
}

const modes: Record<SuspensionMode, string> = { IMMEDIATE: 'Suspended', DRAINING: 'Draining' };

export function Service({ kind, name, suspension }: ServiceProps) {
  const { isOperator, isReadOnly } = useCaller();
  const state = suspension
    ? `${modes[suspension.mode]}${suspension.reason ? `: ${suspension.reason}` : ''}`
    : 'In service';
  return (
    <>
      <span class={`state ${suspension ? 'failed' : 'completed'}`}>
        <bdi>{state}</bdi>
      </span>
      {isOperator && !isReadOnly && <ServiceActions kind={kind} name={name} suspension={suspension} />}
    </>
  );
}

function ServiceActions({ kind, name, suspension }: ServiceProps) {
  const action = useAction();
  const [pendingMode, setPendingMode] = useState<SuspensionMode>();
  if (pendingMode)
    return (
      <SuspendForm action={action} kind={kind} name={name} mode={pendingMode} onEnd={() => setPendingMode(undefined)} />
    );
  const resume = () => action.run(ResumeDocument, { input: { kind, name } });
  return (
    <div class="actions">
      {suspension ? (
        <button type="button" class="button" disabled={action.isRunning} onClick={resume} aria-label={`Resume ${name}`}>
          Resume
        </button>
      ) : (
        <>
          <button
            type="button"
            class="button"
            onClick={() => setPendingMode('IMMEDIATE')}
            aria-label={`Suspend ${name}`}
          >
            Suspend
          </button>
          <button type="button" class="button" onClick={() => setPendingMode('DRAINING')} aria-label={`Drain ${name}`}>
            Drain
          </button>
        </>
      )}
      <Refused why={action.problem} />
    </div>
  );
}

interface SuspendFormProps {
  action: ReturnType<typeof useAction>;
  kind: SuspensionKind;
  name: string;
  mode: SuspensionMode;
  onEnd(): void;
}

function SuspendForm({ action, kind, name, mode, onEnd }: SuspendFormProps) {
  const [reason, setReason] = useState('');
  const word = mode === 'IMMEDIATE' ? 'Suspend' : 'Drain';
  const suspend = async (event: Event) => {
    event.preventDefault();
    if (await action.run(SuspendDocument, { input: { kind, name, mode, reason } })) onEnd();
  };
  return (
    <form onSubmit={suspend}>
      <label>
        Reason for taking {name} out of service
        <input required value={reason} onInput={(event) => setReason(event.currentTarget.value)} />
      </label>
      <div class="actions">
        <button type="submit" class="button danger" disabled={action.isRunning}>
          {word} {name}
        </button>
        <button type="button" class="button" onClick={onEnd}>
          Cancel
        </button>
      </div>
      <Refused why={action.problem} />
    </form>
  );
}
