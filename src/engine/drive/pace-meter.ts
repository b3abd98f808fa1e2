/** Measures how long a drive takes to mount volumes and to read files. */
import type { Medium } from '../../planner/media.js';
import { addFile, addMount, formatPace, type PaceSums, parsePace } from '../../planner/pace.js';

export class PaceMeter {
  private pace: PaceSums;
  private volume: { medium: Medium; files: number; swapSeconds: number } | undefined;

  /** @param sums the sums that the database contains for the drive */
  constructor(sums: readonly number[]) {
    this.pace = parsePace(sums);
  }

  get sums(): number[] {
    return formatPace(this.pace);
  }

  /** Measures a mount. @param files number of files that wait on the volume */
  async mount<Volume>(medium: Medium, files: number, mount: () => Promise<Volume>): Promise<Volume> {
    const startedAt = performance.now();
    const volume = await mount();
    this.volume = { medium, files, swapSeconds: secondsSince(startedAt) };
    return volume;
  }

  /** Measures the files that are read from now on, without a mount. @param files number of files that wait */
  use(medium: Medium, files: number): void {
    this.volume = { medium, files, swapSeconds: 0 };
  }

  /** Measures an unmount, and adds the mount and the unmount to the sums. */
  async unmount(unmount: () => Promise<void>): Promise<void> {
    const startedAt = performance.now();
    await unmount();
    if (this.volume) this.pace = addMount(this.pace, this.volume.swapSeconds + secondsSince(startedAt));
    this.volume = undefined;
  }

  /** Measures the time to locate and read a file of the mounted volume. A failed read does not count. */
  async read<Result>(bytes: bigint, read: () => Promise<Result>): Promise<Result> {
    const startedAt = performance.now();
    const result = await read();
    const { volume } = this;
    if (volume) {
      const seconds = secondsSince(startedAt);
      this.pace = addFile(this.pace, { ...volume, bytes: Number(bytes), seconds });
    }
    return result;
  }
}

const secondsSince = (startedAt: number): number => (performance.now() - startedAt) / 1000;
