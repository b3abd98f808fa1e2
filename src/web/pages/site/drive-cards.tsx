/** Shows each drive as a card with its current activity. */

import { Empty } from '../../parts/empty';
import { HardDrive } from '../../parts/icons';
import { type Drive, DriveState, describeReading, describeStop, VolumeLink } from './drive-state';
import { formatRate } from './durations';
import { DriveMenu } from './plan';

/** Number of drives that are shown as cards. */
const MAX_CARDS = 60;

export function DriveCards({ drives }: { drives: readonly Drive[] }) {
  if (drives.length === 0) {
    return (
      <Empty icon={HardDrive} title="There is no drive yet">
        <p>An engine adds the drives when it first starts.</p>
      </Empty>
    );
  }
  return (
    <>
      <ul class="cards drives">
        {drives.slice(0, MAX_CARDS).map((drive) => (
          <DriveCard key={drive.name} drive={drive} />
        ))}
      </ul>
      {drives.length > MAX_CARDS && <a href="#/plan">All {drives.length} drives</a>}
    </>
  );
}

function DriveCard({ drive }: { drive: Drive }) {
  const { name, libraryName, host, volumeName, filesRunning, bytesPerSecond: rate } = drive;
  const stop = describeStop(drive);
  return (
    <li class="card">
      <div class="head">
        <strong>{name}</strong>
        <span class="ends">
          <DriveState drive={drive} />
          <DriveMenu drive={drive} />
        </span>
      </div>
      <div class="activity">
        {volumeName !== null && (
          <span>
            {filesRunning > 0 ? 'Reads' : 'Has'} <VolumeLink name={volumeName} />
          </span>
        )}
        {volumeName === null && filesRunning === 0 && !stop && <span class="facts">Waiting for work</span>}
        {filesRunning > 0 && rate !== null && rate > 0 && <strong>{formatRate(rate)}</strong>}
      </div>
      {filesRunning > 0 && <div class="facts">{describeReading(drive)}</div>}
      {stop && <div class="why">{stop}</div>}
      <div class="facts small">
        {libraryName}
        {host !== null && ` · ${host}`}
      </div>
    </li>
  );
}
