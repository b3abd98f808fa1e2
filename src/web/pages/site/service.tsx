/**
 * Shows whether an object, such as a drive or a disk, is in service. Operators get a menu to suspend, drain or resume
 * the object. Suspending requires a reason.
 */

import { useEffect, useId, useRef, useState } from 'preact/hooks';
import {
  ResumeDocument,
  SuspendDocument,
  type SuspensionKind,
  type SuspensionMode,
} from '../../../generated/operations.js';
import { useAction } from '../../actions';
import { Badge } from '../../parts/badge';
import { Button } from '../../parts/button';
import { Dialog } from '../../parts/dialog';
import { CirclePlay, OctagonPause, Timer } from '../../parts/icons';
import { Menu, type MenuItem } from '../../parts/menu';
import { Refused } from '../../parts/problem';
import type { Column } from '../../parts/table';
import { useToast } from '../../parts/toast';
import { useCaller } from '../../sign-in/caller';
import { reloadViews } from './live';

type Suspended = { mode: SuspensionMode; reason: string | null } | null | undefined;

const modes: Record<SuspensionMode, string> = { IMMEDIATE: 'Suspended', DRAINING: 'Draining' };

export function ServiceState({ suspension }: { suspension: Suspended }) {
  if (!suspension) return <Badge tone="good">In service</Badge>;
  const { mode, reason } = suspension;
  return (
    <>
      <Badge tone={mode === 'IMMEDIATE' ? 'bad' : 'wait'} icon={OctagonPause}>
        {modes[mode]}
      </Badge>{' '}
      {reason && <Cut text={reason} />}
    </>
  );
}

/** Shows a text on one line. The tooltip has the whole text. */
export const Cut = ({ text }: { text: string }) => (
  <bdi class="cut" title={text}>
    {text}
  </bdi>
);

interface ServiceMenuProps {
  kind: SuspensionKind;
  name: string;
  suspension: Suspended;
  /** Further actions. */
  more?: readonly MenuItem[];
}

/** Shows the menu only to operators who may make changes. */
export function ServiceMenu(props: ServiceMenuProps) {
  const { isOperator, isReadOnly } = useCaller();
  return isOperator && !isReadOnly ? <ActionMenu {...props} /> : null;
}

function ActionMenu({ kind, name, suspension, more = [] }: ServiceMenuProps) {
  const toast = useToast();
  const action = useAction();
  const [mode, setMode] = useState<SuspensionMode>();
  const place = useRef<HTMLSpanElement>(null);
  const { problem } = action;
  useEffect(() => {
    if (problem !== undefined) toast(problem, { tone: 'bad' });
  }, [problem, toast]);
  const resume = async () => {
    if (await action.run(ResumeDocument, { input: { kind, name } })) {
      toast(`${name} is in service again.`);
      reloadViews();
    }
  };
  const wasOpen = useRef(false);
  useEffect(() => {
    // return the focus to the button of the menu, because the menu item that opened the dialog is gone
    if (wasOpen.current && mode === undefined) place.current?.querySelector('button')?.focus();
    wasOpen.current = mode !== undefined;
  }, [mode]);
  const items: MenuItem[] = suspension
    ? [{ text: 'Resume', icon: CirclePlay, onSelect: resume }]
    : [
        { text: 'Suspend …', icon: OctagonPause, isDangerous: true, onSelect: () => setMode('IMMEDIATE') },
        { text: 'Drain …', icon: Timer, onSelect: () => setMode('DRAINING') },
      ];
  return (
    <span ref={place}>
      <Menu label={`Actions for ${name}`} items={[...items, ...(more.length > 0 ? [null, ...more] : [])]} />
      {mode && <SuspendDialog kind={kind} name={name} mode={mode} onClose={() => setMode(undefined)} />}
    </span>
  );
}

const effects: Record<SuspensionMode, string> = {
  IMMEDIATE: 'Work in progress is stopped and put back in the queue. No new work starts.',
  DRAINING: 'Work in progress finishes. No new work starts.',
};

interface SuspendDialogProps {
  kind: SuspensionKind;
  name: string;
  mode: SuspensionMode;
  onClose(): void;
}

function SuspendDialog({ kind, name, mode, onClose }: SuspendDialogProps) {
  const toast = useToast();
  const action = useAction();
  const [reason, setReason] = useState('');
  const formId = useId();
  const word = mode === 'IMMEDIATE' ? 'Suspend' : 'Drain';
  const suspend = async (event: Event) => {
    event.preventDefault();
    if (!(await action.run(SuspendDocument, { input: { kind, name, mode, reason } }))) return;
    onClose();
    toast(`${name} is ${mode === 'IMMEDIATE' ? 'suspended' : 'draining'}.`);
    reloadViews();
  };
  return (
    <Dialog
      title={`${word} ${name}`}
      onClose={onClose}
      footer={
        <>
          <Button onClick={onClose}>Back</Button>
          <Button
            kind="danger"
            type="submit"
            form={formId}
            disabledReason={action.isRunning ? 'The gateway is making the change.' : undefined}
          >
            {word} {name}
          </Button>
        </>
      }
    >
      <form id={formId} onSubmit={suspend}>
        <p>{effects[mode]}</p>
        <label>
          Reason for taking {name} out of service
          <input required value={reason} onInput={(event) => setReason(event.currentTarget.value)} />
        </label>
        <p class="hint">The reason is shown to users and operators.</p>
        <Refused why={action.problem} />
      </form>
    </Dialog>
  );
}

/** Returns the columns for the service state and the menu of a list's rows. */
export function serviceColumns<Row extends { suspension: Suspended }>(
  kind: SuspensionKind,
  nameOf: (row: Row) => string,
  moreOf?: (row: Row) => readonly MenuItem[],
): Column<Row>[] {
  return [
    { title: 'Service', cell: ({ suspension }) => <ServiceState suspension={suspension} /> },
    {
      title: 'Actions',
      isUntitled: true,
      isNumber: true,
      cell: (row) => (
        <ServiceMenu kind={kind} name={nameOf(row)} suspension={row.suspension} more={moreOf?.(row) ?? []} />
      ),
    },
  ];
}
