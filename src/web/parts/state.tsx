/** Names for the states of requests (such as `Queued`) and of files (such as `On tape`) in the dashboard. */

import { countMissing, type RequestedFiles } from '../../core/text/requested-files.js';
import type { RequestState, Stage } from '../../generated/operations.js';

export const requestStates: Record<RequestState, string> = {
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

/** Returns whether a request has ended and therefore no longer keeps its files on disk. */
export const isOver = (state: RequestState): boolean => state === 'EXPIRED' || state === 'CANCELLED';

/** Shows the state of a request. A request without files has the state COMPLETED, but is shown as `No files`. */
export function RequestStateName({ request }: { request: RequestedFiles & { state: RequestState } }) {
  const { state, filesTotal } = request;
  if (state === 'COMPLETED' && filesTotal === 0) return <span class="state">No files</span>;
  if (state === 'COMPLETED' && countMissing(request) > 0)
    return <span class="state partial">Ended, some files not found</span>;
  return <span class={`state ${state.toLowerCase()}`}>{requestStates[state]}</span>;
}

export function StageName({ stage }: { stage: Stage }) {
  return <span class={`state ${stage.toLowerCase()}`}>{stages[stage]}</span>;
}
