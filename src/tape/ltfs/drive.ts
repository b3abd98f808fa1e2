/**
 * One drive of an LTFS library, with two locks.
 *
 * A Tapegate process holds the lock `drive …` while it uses the drive. If the lock is free but the drive contains a
 * cartridge, the process that loaded the cartridge has died.
 *
 * The LTFS process inherits the lock `ltfs …`, and holds this lock until it exits, some time after the unmount. Moving
 * the cartridge before the LTFS process exits might damage the data on the cartridge.
 */
import { readFile, realpath } from 'node:fs/promises';
import path from 'node:path';
import { messageOf, type TapeError } from '../../core/errors.js';
import { DriveError, LibraryError, VolumeError } from '../drive-library.js';
import { type Changer, type Element, findDrive, findVolume, isCleaning } from './changer.js';
import { CommandFailure, type HeldLock, type LockDirectory, runCommand } from './commands.js';
import { fill, type LtfsDrive, type LtfsSettings } from './settings.js';

/** Maximum time, in seconds, for each attempt to take the lock that the LTFS process holds. */
const LOOK_SECONDS = 1;

/** Matches error messages that blame the drive or its mount point, and not the cartridge. */
const BUSY = /\b(busy|reserv\w+|in use)\b/i;
const FUSE = /^(fuse|fusermount3?|mount):/m;

const NO_FUSE = /^(fuse|fusermount3?):.*(device not found|modprobe|\/dev\/fuse)/m;

export class DriveInUseError extends DriveError {}

interface Shop {
  settings: LtfsSettings;
  locks: LockDirectory;
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
   * Loads and mounts a cartridge. First cleans up after processes that died: unmounts the mount point, and empties this
   * drive. If the requested cartridge is still in another drive, unloads it from that drive.
   * @param waitSeconds maximum time to wait while another process uses the drive
   * @returns the drive's lock, which the caller must close after it has emptied the drive
   * @throws DriveInUseError if another process uses the drive
   */
  async open(volume: string, waitSeconds: number, signal: AbortSignal): Promise<HeldLock> {
    const inUse = await this.lock(waitSeconds, signal);
    if (!inUse)
      throw new DriveInUseError('TRANSIENT', `another process uses ${this.drive.name} (${this.drive.device})`);
    let isOurs = false;
    try {
      const ltfs = await this.clear(signal);
      try {
        await this.insert(volume, signal);
        isOurs = true;
        await this.mount(volume, ltfs, signal);
      } finally {
        ltfs.close();
      }
      return inUse;
    } catch (error) {
      // do not empty the drive after an aborted mount, because the mount command might still be running. The next mount
      // empties the drive, even if `empty` fails here
      if (isOurs && !signal.aborted) await this.empty().catch(() => {});
      inUse.close();
      throw error;
    }
  }

  /**
   * Unmounts the cartridge, waits until the LTFS process has exited, and moves the cartridge to a slot.
   * @throws DriveError if a step fails; the next mount cleans up
   */
  async empty(): Promise<void> {
    // pass a signal that never aborts, because each step has its own time limit
    const { signal } = new AbortController();
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

  /** Unmounts the cartridge, and waits until the drive's LTFS process has exited. */
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
    throw new DriveError('TRANSIENT', `LTFS for ${name} (${device}) did not exit within ${seconds.unmount} s`);
  }

  private async unmount(signal: AbortSignal): Promise<void> {
    const { commands, seconds } = this.shop.settings;
    try {
      await runCommand(fill(commands.unmount, { ...this.drive }), { seconds: seconds.unmount, signal });
    } catch (error) {
      if (!(error instanceof CommandFailure)) throw error;
      if (!(await this.isMounted())) return;
      throw new DriveError('TRANSIENT', `${this.drive.name}: ${error.message}`, { cause: error });
    }
  }

  private async insert(volume: string, signal: AbortSignal): Promise<void> {
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

  private async freeElsewhere(volume: string, at: Element, signal: AbortSignal): Promise<void> {
    const { settings, changer } = this.shop;
    const there = [...settings.drives.values()].find(({ element }) => element === at.number);
    const where = `the cartridge ${volume} is in drive ${at.number} of the changer`;
    if (!there) throw new VolumeError('TRANSIENT', `${where}, a drive that does not belong to this library`);
    const other = new Drive(there, this.shop);
    // do not wait for the lock, because two drives could wait for each other forever
    const inUse = await other.lock(0, signal);
    if (!inUse) throw new VolumeError('TRANSIENT', `${where} (${there.name}), which another process uses`);
    try {
      const ltfs = await other.clear(signal);
      try {
        await changer.unload(there.element, there.device, signal);
      } finally {
        ltfs.close();
      }
    } catch (error) {
      // throw a VolumeError, because a DriveError would count against this drive and not against the other drive
      if (!(error instanceof DriveError)) throw error;
      throw new VolumeError(
        'TRANSIENT',
        `${where} (${there.name}), and cannot be unloaded from there: ${error.message}`,
        {
          cause: error,
        },
      );
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
    // check the mount, because otherwise reads from an empty mount point would fail permanently for all files on the
    // volume
    if (await this.isMounted()) return;
    throw new DriveError(
      'POLICY',
      `nothing is mounted at ${mountPoint}, although the command that mounts ${volume} in ${name} succeeded`,
    );
  }
}

function explainMount(failure: CommandFailure, volume: string, drive: string): TapeError {
  const text = `cannot mount the cartridge ${volume} in ${drive}: ${failure.message}`;
  if (failure.isTimeout) return new VolumeError('TRANSIENT', text, { cause: failure });
  if (NO_FUSE.test(failure.output)) return new LibraryError('TRANSIENT', text, { cause: failure });
  if (BUSY.test(failure.output) || FUSE.test(failure.output))
    return new DriveError('TRANSIENT', text, { cause: failure });
  return new VolumeError('MEDIA', text, { cause: failure });
}

/**
 * Returns whether an LTFS file system is mounted at the mount point.
 * @param table path of a file in the format of /proc/self/mountinfo
 * @throws DriveError if the mount point's parent directory is unreadable
 * @throws LibraryError if the table is unreadable
 */
async function isMounted(table: string, mountPoint: string): Promise<boolean> {
  const describe = (error: unknown) =>
    [`cannot read the mounts of ${mountPoint}: ${messageOf(error)}`, { cause: error }] as const;
  // resolve only the parent directory, because `realpath` fails for a mount point whose FUSE process has died
  const directory = await realpath(path.dirname(mountPoint)).catch((error: unknown) => {
    throw new DriveError('POLICY', ...describe(error));
  });
  const mounts = await readFile(table, 'utf8').catch((error: unknown) => {
    throw new LibraryError('POLICY', ...describe(error));
  });
  const target = path.join(directory, path.basename(mountPoint));
  const found = readMounts(mounts).findLast((mount) => mount.target === target);
  const real = table === KERNEL_TABLE ? found : await findReal(mountPoint);
  for (const { type } of [found, real].filter((mount) => mount !== undefined)) {
    if (LTFS_TYPE.test(type)) continue;
    const message = `a file system of type ${type} is mounted at ${mountPoint} instead of LTFS (fuse): give the drive its own mountPoint`;
    throw new DriveError('POLICY', message);
  }
  return found !== undefined;
}

const KERNEL_TABLE = '/proc/self/mountinfo';

/**
 * Matches the file system types that Tapegate is allowed to unmount. A library's settings must not let operators
 * unmount other file systems.
 */
const LTFS_TYPE = /^fuse(\.ltfs\w*)?$/;

interface Mount {
  target: string;
  type: string;
}

/** Returns the mount that `umount` would remove, which is the kernel's last entry for the mount point. */
async function findReal(mountPoint: string): Promise<Mount | undefined> {
  const target = await realpath(mountPoint).catch(() => mountPoint);
  const mounts = readMounts(await readFile(KERNEL_TABLE, 'utf8').catch(() => ''));
  return mounts.findLast((mount) => mount.target === target);
}

/**
 * Parses a mount table in the format of /proc/self/mountinfo. The fifth field is the mount point, with octal escapes
 * for space, tab, newline and backslash. The file system type follows the separator ` - `.
 */
export function readMounts(table: string): Mount[] {
  return table
    .split('\n')
    .map((line) => ({ field: line.split(' ')[4] ?? '', type: / - (\S+)/.exec(line)?.[1] ?? '' }))
    .filter(({ field }) => field !== '')
    .map(({ field, type }) => ({
      target: field.replace(/\\([0-7]{3})/g, (_, digits: string) => String.fromCharCode(Number.parseInt(digits, 8))),
      type,
    }));
}
