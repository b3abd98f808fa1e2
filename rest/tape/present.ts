/** What the WLCG Tape REST API tells of stage requests and files. Times are whole seconds. */
import type { BulkFileRow, BulkRow, LocalityProblem, LocalityRow } from '../../src/operations/bulks/bulks.js';
import { secondsOf } from '../../src/time.js';

const toSeconds = (time: string) => Math.floor(secondsOf(time));

/** All but its files. */
export function presentBulk({ id, madeAt, startedAt, endedAt }: BulkRow) {
  const createdAt = toSeconds(madeAt);
  return {
    id,
    createdAt,
    startedAt: startedAt === null ? createdAt : toSeconds(startedAt),
    ...(endedAt !== null && { completedAt: toSeconds(endedAt) }),
  };
}

export function presentFile({ given, state, startedAt, problem, error, isLate }: BulkFileRow) {
  const text =
    problem === null ? (error ?? (isLate ? 'its disk lifetime was over before it came' : null)) : problems[problem];
  return {
    path: given,
    state,
    ...(state === 'STARTED' && startedAt !== null && { startedAt: toSeconds(startedAt) }),
    ...(text !== null && { error: text }),
  };
}

/** For people. */
const problems: Record<LocalityProblem | 'QUOTA_FULL', string> = {
  UNKNOWN: 'there is no such file, or you may not request it',
  FOLDER: 'it is a folder: name its files',
  ELSEWHERE: 'its copy on disk is at its primary place, or was changed there, and is not served here',
  QUOTA_FULL: 'the quota has no room for it',
  NOT_YOURS: 'you may not read it',
  DISK_FAILS: 'the disk that has its copy does not work at the moment',
  VOLUME_AWAY: 'the volume that has it is out of service at the moment',
  NO_PLACE: 'nobody knows on which volume it is',
};

export function presentLocality(given: string, row: LocalityRow | undefined) {
  const { locality, problem } = row ?? { locality: null, problem: 'UNKNOWN' as const };
  return { path: given, ...(locality !== null && { locality }), ...(problem !== null && { error: problems[problem] }) };
}
