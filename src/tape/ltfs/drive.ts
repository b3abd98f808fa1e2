/**
 * One drive of an LTFS library. Two locks tell of it what no list of processes does:
 * - `drive …`: a process of Tapegate works with it, for as long as a cartridge is mounted there. What is in a drive whose lock is free, was left
 *   by one that has died.
 * - `ltfs …`: inherited by the process of LTFS, which goes on for a while after its unmount, and is to be left alone until it has ended: to
 *   move a cartridge meanwhile may spoil it.
 */
import { readFile, realpath } from 'node:fs/promises';
import path from 'node:path';
import { messageOf, type TapeError } from '../../errors.js';
import { DriveError, LibraryError, VolumeError } from '../backend.js';
import { type Changer, type Element, findDrive, findVolume, isCleaning } from './changer.js';
import { CommandFailure, type HeldLock, type LockFolder, runCommand } from './commands.js';
import { fill, type LtfsDrive, type LtfsSettings } from './settings.js';

/** What a look at the lock of LTFS waits for at a time. */
const LOOK_SECONDS = 1;

/** What says that not the cartridge is at fault, but the drive, or its mount point. */
const BUSY = /\b(busy|reserv\w+|in use)\b/i;
const FUSE = /^(fuse|fusermount3?|mount):/m;

const NO_FUSE = /^(fuse|fusermount3?):.*(device not found|modprobe|\/dev\/fuse)/m;

export class DriveInUseError extends DriveError {}

interface Shop {
  settings: LtfsSettings;
  locks: LockFolder;
  changer: Changer;
}

export class Drive {
  readonly drive: LtfsDrive;
  private readonly shop: Shop;

  constructor(drive: LtfsDrive, shop: Shop) {
    this.drive = drive;
    this.shop = shop;
  }

  /**
   * Puts the cartridge in and mounts it, whatever a process that has died has left: in the drive, at the mount point, or of the cartridge in another drive.
   * @param waitSeconds for another process that works with the drive
   * @returns what is to be closed when the drive is empty again
   * @throws DriveInUseError
   */
  async open(volume: string, waitSeconds: number, signal: AbortSignal): Promise<HeldLock> {
    const inUse = await this.lock(waitSeconds, signal);
    if (!inUse)
      throw new DriveInUseError('TRANSIENT', `another process uses ${this.drive.name} (${this.drive.device})`);
    let isOurs = false;
    try {
      const ltfs = await this.clear(signal);
      try {
        await this.place(volume, signal);
        isOurs = true;
        await this.mount(volume, ltfs, signal);
      } finally {
        ltfs.close();
      }
      return inUse;
    } catch (error) {
      // an aborted mount may go on by itself, and is in nobody's way: whoever comes next clears it
      if (isOurs && !signal.aborted) await this.empty().catch(() => {}); // or that does
      inUse.close();
      throw error;
    }
  }

  /** Unmounts, waits for LTFS, and puts the cartridge back. @throws DriveError when something stays, for the next mount to clear */
  async empty(): Promise<void> {
    const { signal } = new AbortController(); // each step has its own time
    const ltfs = await this.clear(signal);
    try {
      await this.shop.changer.unload(this.drive.element, this.drive.device, signal);
    } finally {
      ltfs.close();
    }
  }

  private async lock(seconds: number, signal: AbortSignal): Promise<HeldLock | undefined> {
    return await this.shop.locks.take(`drive ${this.drive.device}`, seconds, signal);
  }

  async isMounted(): Promise<boolean> {
    return await isMounted(this.shop.settings.mountTable, this.drive.mountPoint);
  }

  /**
   * Nothing is mounted afterwards, and no process of LTFS is at work: neither one that unmounts, nor one that was about to mount when
   * its engine died.
   */
  private async clear(signal: AbortSignal): Promise<HeldLock> {
    const { seconds } = this.shop.settings;
    const { name, device } = this.drive;
    const deadline = performance.now() + seconds.unmount * 1000;
    do {
      if (await this.isMounted()) await this.unmount(signal);
      const ltfs = await this.shop.locks.take(`ltfs ${device}`, LOOK_SECONDS, signal);
      if (ltfs && !(await this.isMounted())) return ltfs;
      ltfs?.close();
    } while (performance.now() < deadline);
    throw new DriveError('TRANSIENT', `LTFS of ${name} (${device}) has not ended within ${seconds.unmount} s`);
  }

  private async unmount(signal: AbortSignal): Promise<void> {
    const { commands, seconds } = this.shop.settings;
    try {
      await runCommand(fill(commands.unmount, { ...this.drive }), { seconds: seconds.unmount, signal });
    } catch (error) {
      if (!(error instanceof CommandFailure)) throw error;
      if (!(await this.isMounted())) return; // it was, and somebody else was faster
      throw new DriveError('TRANSIENT', `${this.drive.name}: ${error.message}`, { cause: error });
    }
  }

  /** The cartridge is in the drive afterwards. */
  private async place(volume: string, signal: AbortSignal): Promise<void> {
    const { changer } = this.shop;
    const { element, device, name } = this.drive;
    let elements = await changer.readElements(signal);
    let [own, at] = [findDrive(elements, element), findVolume(elements, volume)];
    if (at === own) return;
    if (own.isFull && isCleaning(own)) {
      throw new DriveError('TRANSIENT', `the cleaning cartridge ${own.volume} is in ${name}`);
    }
    if (own.isFull) await changer.unload(element, device, signal);
    if (at.kind === 'drive') await this.freeElsewhere(volume, at, signal);
    if (own.isFull || at.kind === 'drive') {
      elements = await changer.readElements(signal);
      [own, at] = [findDrive(elements, element), findVolume(elements, volume)];
      if (at === own) return;
    }
    if (at.kind === 'drive')
      throw new VolumeError('TRANSIENT', `the cartridge ${volume} is in drive ${at.number} of the changer`);
    await changer.load(volume, at, this.drive, signal);
  }

  /** Takes the cartridge out of another drive where a process that has died has left it. */
  private async freeElsewhere(volume: string, at: Element, signal: AbortSignal): Promise<void> {
    const { settings, changer } = this.shop;
    const there = [...settings.drives.values()].find(({ element }) => element === at.number);
    const where = `the cartridge ${volume} is in drive ${at.number} of the changer`;
    if (!there) throw new VolumeError('TRANSIENT', `${where}, which is none of this library`);
    const other = new Drive(there, this.shop);
    const inUse = await other.lock(0, signal); // never waited for: two drives might wait for each other
    if (!inUse) throw new VolumeError('TRANSIENT', `${where}, ${there.name}, which another process uses`);
    try {
      const ltfs = await other.clear(signal);
      try {
        await changer.unload(there.element, there.device, signal);
      } finally {
        ltfs.close();
      }
    } catch (error) {
      // of the other one: the drive that is to have the cartridge may have any other
      if (!(error instanceof DriveError)) throw error;
      throw new VolumeError('TRANSIENT', `${where}, ${there.name}, which does not give it: ${error.message}`, {
        cause: error,
      });
    } finally {
      inUse.close();
    }
  }

  private async mount(volume: string, ltfs: HeldLock, signal: AbortSignal): Promise<void> {
    const { commands, seconds } = this.shop.settings;
    const { name, mountPoint } = this.drive;
    try {
      const args = fill(commands.mount, { ...this.drive, volume });
      await runCommand(args, { seconds: seconds.mount, lock: ltfs.fd, signal });
    } catch (error) {
      if (!(error instanceof CommandFailure)) throw error;
      throw explainMount(error, volume, name);
    }
    // else an empty folder would be read, and each file given up that is not in it
    if (await this.isMounted()) return;
    throw new DriveError('POLICY', `nothing is mounted at ${mountPoint}, though ${name} has done as if ${volume} were`);
  }
}

function explainMount(failure: CommandFailure, volume: string, drive: string): TapeError {
  const text = `the cartridge ${volume} cannot be mounted in ${drive}: ${failure.message}`;
  if (failure.isTimeout) return new VolumeError('TRANSIENT', text, { cause: failure });
  if (NO_FUSE.test(failure.output)) return new LibraryError('TRANSIENT', text, { cause: failure });
  if (BUSY.test(failure.output) || FUSE.test(failure.output))
    return new DriveError('TRANSIENT', text, { cause: failure });
  return new VolumeError('MEDIA', text, { cause: failure });
}

/**
 * @param table a file in the form of /proc/self/mountinfo
 * @throws DriveError where the folder above the mount point cannot be read, LibraryError where the table cannot
 */
async function isMounted(table: string, mountPoint: string): Promise<boolean> {
  const tell = (error: unknown) =>
    [`what is mounted at ${mountPoint} is not known: ${messageOf(error)}`, { cause: error }] as const;
  // a dead file system answers nothing about its own place, the folder above it does
  const folder = await realpath(path.dirname(mountPoint)).catch((error: unknown) => {
    throw new DriveError('POLICY', ...tell(error));
  });
  const mounts = await readFile(table, 'utf8').catch((error: unknown) => {
    throw new LibraryError('POLICY', ...tell(error));
  });
  return readMountPoints(mounts).includes(path.join(folder, path.basename(mountPoint)));
}

/** The fifth field of each line; space, tab, line feed and backslash are written in octal digits. */
export function readMountPoints(table: string): string[] {
  return table
    .split('\n')
    .map((line) => line.split(' ')[4] ?? '')
    .filter((field) => field !== '')
    .map((field) =>
      field.replace(/\\([0-7]{3})/g, (_, digits: string) => String.fromCharCode(Number.parseInt(digits, 8))),
    );
}
