/** The names of states and stages. */
import type { RequestState, Stage } from '../../generated/web-operations';

const requestStates: Record<RequestState, string> = {
  QUEUED: 'Queued',
  RESTORING: 'Restoring',
  COMPLETED: 'Complete',
  PARTIAL: 'Ended, with failures',
  EXPIRED: 'Expired',
  CANCELLED: 'Cancelled',
};

const stages: Record<Stage, string> = {
  UNVERIFIED: 'Unverified',
  ONDISK: 'On disk',
  ONTAPE: 'On tape',
  RESTORING: 'Restoring',
  RESTORED: 'Restored',
};

export function RequestStateName({ state }: { state: RequestState }) {
  return <span class={`state ${state.toLowerCase()}`}>{requestStates[state]}</span>;
}

export function StageName({ stage }: { stage: Stage }) {
  return <span class={`state ${stage.toLowerCase()}`}>{stages[stage]}</span>;
}
