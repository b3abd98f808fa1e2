/** Whether something is in service, and the ways to take it out and to put it back: for operators, who are asked for a reason. */
import { useState } from 'preact/hooks';
import {
  ResumeDocument,
  SuspendDocument,
  type SuspensionKind,
  type SuspensionMode,
} from '../../generated/web-operations';
import { useCaller } from '../caller';
import { useDeed } from '../deeds';
import { Refused } from './problem';

interface ServiceProps {
  kind: SuspensionKind;
  name: string;
  suspension: { mode: SuspensionMode; reason: string } | null | undefined;
}

const modes: Record<SuspensionMode, string> = { IMMEDIATE: 'Suspended', DRAINING: 'Draining' };

export function Service({ kind, name, suspension }: ServiceProps) {
  const { isOperator, isReadOnly } = useCaller();
  const state = suspension ? `${modes[suspension.mode]}${suspension.reason && `: ${suspension.reason}`}` : 'In service';
  return (
    <>
      <span class={`state ${suspension ? 'failed' : 'completed'}`}>
        <bdi>{state}</bdi>
      </span>
      {isOperator && !isReadOnly && <ServiceDeeds kind={kind} name={name} suspension={suspension} />}
    </>
  );
}

function ServiceDeeds({ kind, name, suspension }: ServiceProps) {
  const deed = useDeed();
  const [asked, setAsked] = useState<SuspensionMode>();
  if (asked) return <Ask deed={deed} kind={kind} name={name} mode={asked} onEnd={() => setAsked(undefined)} />;
  const resume = () => deed.run(ResumeDocument, { input: { kind, name } });
  return (
    <div class="deeds">
      {suspension ? (
        <button type="button" disabled={deed.isRunning} onClick={resume} aria-label={`Resume ${name}`}>
          Resume
        </button>
      ) : (
        <>
          <button type="button" onClick={() => setAsked('IMMEDIATE')} aria-label={`Suspend ${name}`}>
            Suspend
          </button>
          <button type="button" onClick={() => setAsked('DRAINING')} aria-label={`Drain ${name}`}>
            Drain
          </button>
        </>
      )}
      <Refused why={deed.problem} />
    </div>
  );
}

interface AskProps {
  deed: ReturnType<typeof useDeed>;
  kind: SuspensionKind;
  name: string;
  mode: SuspensionMode;
  onEnd(): void;
}

function Ask({ deed, kind, name, mode, onEnd }: AskProps) {
  const [reason, setReason] = useState('');
  const word = mode === 'IMMEDIATE' ? 'Suspend' : 'Drain';
  const suspend = async (event: Event) => {
    event.preventDefault();
    if (await deed.run(SuspendDocument, { input: { kind, name, mode, reason } })) onEnd();
  };
  return (
    <form onSubmit={suspend}>
      <label>
        Why is {name} taken out of service?
        <input required value={reason} onInput={(event) => setReason(event.currentTarget.value)} />
      </label>
      <div class="deeds">
        <button type="submit" class="danger" disabled={deed.isRunning}>
          {word} {name}
        </button>
        <button type="button" onClick={onEnd}>
          Leave it
        </button>
      </div>
      <Refused why={deed.problem} />
    </form>
  );
}
