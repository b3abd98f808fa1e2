/** The names of states and stages. */

import { countMissing, type RequestedFiles } from '../../core/requested-files.js';
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

/** What it had is its own no more, whether it is on disk or not. */
export const isOver = (state: RequestState): boolean => state === 'EXPIRED' || state === 'CANCELLED';

/** One in which no file is has nothing left to do, which is not what people call complete. */
export function RequestStateName({ request }: { request: RequestedFiles & { state: RequestState } }) {
  const { state, filesTotal } = request;
  if (state === 'COMPLETED' && filesTotal === 0) return <span class="state">No files</span>;
  if (state === 'COMPLETED' && countMissing(request) > 0)
    return <span class="state partial">Ended, not all found</span>;
  return <span class={`state ${state.toLowerCase()}`}>{requestStates[state]}</span>;
}

export function StageName({ stage }: { stage: Stage }) {
  return <span class={`state ${stage.toLowerCase()}`}>{stages[stage]}</span>;
}
