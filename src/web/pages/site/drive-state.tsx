/** Shows what a drive is doing, for whom, or why it does nothing. */

import type { DriveStateFragment } from '../../../generated/operations.js';
import { count, formatBytes } from '../../format';
import { Badge } from '../../parts/badge';
import { CircleDashed, Disc3, OctagonPause, Timer, TriangleAlert } from '../../parts/icons';
import { linkTo } from '../../route';

export type Drive = DriveStateFragment;

/** Returns the state of a drive in a word or two. */
export function stateOf({ suspension, isClaimed, hasLibraryFailed, volumeName, filesRunning, isOpen }: Drive): string {
  if (suspension) return suspension.mode === 'IMMEDIATE' ? 'Suspended' : 'Draining';
  if (!isOpen) return 'Out of service';
  if (hasLibraryFailed) return 'Library failed';
  if (!isClaimed) return 'No engine';
  if (filesRunning > 0) return 'Reading';
  return volumeName === null ? 'Idle' : 'Mounted';
}

const looks = {
  Suspended: ['bad', OctagonPause],
  Draining: ['wait', Timer],
  'Out of service': ['bad', OctagonPause],
  'Library failed': ['bad', TriangleAlert],
  'No engine': ['wait', TriangleAlert],
  Reading: ['info', Disc3],
  Mounted: ['good', Disc3],
  Idle: ['quiet', CircleDashed],
} as const;

export function DriveState({ drive }: { drive: Drive }) {
  const state = stateOf(drive);
  const [tone, icon] = looks[state as keyof typeof looks];
  return (
    <Badge tone={tone} icon={icon}>
      {state}
    </Badge>
  );
}

export function VolumeLink({ name }: { name: string }) {
  return (
    <a href={linkTo(['volumes', name])}>
      <bdi>{name}</bdi>
    </a>
  );
}

/** Number of users that a card names. */
const NAMED_USERS = 3;

export function describeUsers(users: readonly string[]): string {
  const named = users.slice(0, NAMED_USERS).join(', ');
  return users.length > NAMED_USERS ? `${named} and others` : named;
}

/** Describes the files that the drive reads, such as `12 files, 3.0 GB for alice`; empty if it reads none. */
export function describeReading({ filesRunning, bytesRunning, users }: Drive): string {
  if (filesRunning === 0) return '';
  const files = `${count(filesRunning, 'file')}, ${formatBytes(bytesRunning)}`;
  return users.length > 0 ? `${files} for ${describeUsers(users)}` : files;
}

/** Describes why a drive does not work; empty if it works. */
export function describeStop({ suspension, libraryName, hasLibraryFailed, isClaimed, isOpen }: Drive): string {
  if (suspension) {
    const reason = suspension.reason ?? '';
    return suspension.kind === 'LIBRARY' ? `Library ${libraryName}${reason && `: ${reason}`}` : reason;
  }
  if (!isOpen) return '';
  if (hasLibraryFailed) return `Library ${libraryName} does not answer. An engine will try it again.`;
  return isClaimed ? '' : 'No running engine has claimed this drive.';
}
