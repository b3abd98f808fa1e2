/** Badges for the states of requests (such as `Queued`) and the stages of files (such as `On tape`). */

import { countMissing, type RequestedFiles } from '../../core/text/requested-files.js';
import type { RequestState, Stage } from '../../generated/operations.js';
import { Badge, type Tone } from './badge';
import {
  CassetteTape,
  CircleCheck,
  CircleSlash,
  Clock,
  HardDrive,
  type IconType,
  LoaderCircle,
  TriangleAlert,
} from './icons';

export const requestStates: Record<RequestState, string> = {
  QUEUED: 'Queued',
  RESTORING: 'Restoring',
  COMPLETED: 'Complete',
  PARTIAL: 'Finished with failures',
  EXPIRED: 'Expired',
  CANCELLED: 'Cancelled',
};

type Look = [tone: Tone, icon: IconType];

const requestLooks: Record<RequestState, Look> = {
  QUEUED: ['wait', Clock],
  RESTORING: ['info', LoaderCircle],
  COMPLETED: ['good', CircleCheck],
  PARTIAL: ['bad', TriangleAlert],
  EXPIRED: ['quiet', CircleSlash],
  CANCELLED: ['quiet', CircleSlash],
};

const stages: Record<Stage, [text: string, ...Look]> = {
  UNVERIFIED: ['Unverified', 'quiet', HardDrive],
  ONDISK: ['On disk', 'good', HardDrive],
  ONTAPE: ['On tape', 'quiet', CassetteTape],
  RESTORING: ['Restoring', 'info', LoaderCircle],
  RESTORED: ['Restored', 'good', CircleCheck],
};

/** Returns whether a request has ended and therefore no longer keeps its files on disk. */
export const isOver = (state: RequestState): boolean => state === 'EXPIRED' || state === 'CANCELLED';

/** Shows the state of a request. A request without files has the state COMPLETED, but is shown as `No files`. */
export function RequestStateName({ request }: { request: RequestedFiles & { state: RequestState } }) {
  const { state, filesTotal } = request;
  if (state === 'COMPLETED' && filesTotal === 0) return <Badge tone="quiet">No files</Badge>;
  if (state === 'COMPLETED' && countMissing(request) > 0)
    return (
      <Badge tone="bad" icon={TriangleAlert}>
        Finished, some files not found
      </Badge>
    );
  const [tone, icon] = requestLooks[state];
  return (
    <Badge tone={tone} icon={icon}>
      {requestStates[state]}
    </Badge>
  );
}

export function StageName({ stage }: { stage: Stage }) {
  const [text, tone, icon] = stages[stage];
  return (
    <Badge tone={tone} icon={icon}>
      {text}
    </Badge>
  );
}
