/**
 * The changer: one command at a time, over all drives and processes that share the locks. A command has the lock itself, so that one whose
 * process has died keeps others away until its move is done.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { DriveError, LibraryError, VolumeError } from '../backend.js';
import { CommandFailure, runCommand } from './commands.js';
import { chooseSlot, type Element, findDrive, parseElements } from './elements.js';
import type { LockFolder } from './locks.js';
import { fill, type LtfsDrive, type LtfsSettings } from './settings.js';

/** A drive that has just been let go may refuse to give its cartridge for a while. */
const AGAIN_MS = { first: 250, most: 5000 };

export class Changer {
  private readonly settings: LtfsSettings;
  private readonly locks: LockFolder;

  constructor(settings: LtfsSettings, locks: LockFolder) {
    this.settings = settings;
    this.locks = locks;
  }

  /** @throws LibraryError */
  async readElements(signal: AbortSignal): Promise<Element[]> {
    try {
      return parseElements(await this.run('status', {}, signal));
    } catch (error) {
      if (!(error instanceof CommandFailure)) throw error;
      throw new LibraryError('TRANSIENT', `the changer ${this.settings.changer}: ${error.message}`, { cause: error });
    }
  }

  /**
   * Puts a cartridge into a drive that is empty.
   * @throws DriveError when another cartridge is in there; VolumeError when it does not come: cartridge or drive may be the cause
   */
  async load(volume: string, from: Element, drive: LtfsDrive, signal: AbortSignal): Promise<void> {
    const { device, element } = drive;
    try {
      await this.run('load', { slot: from.number, element, device, volume }, signal);
    } catch (error) {
      if (!(error instanceof CommandFailure)) throw error;
      // it may be there all the same: an answer was lost, or somebody else was asked to do the same
      const now = findDrive(await this.readElements(signal), element);
      if (now.volume === volume) return;
      const text = `the cartridge ${volume} could not be loaded into ${drive.name}: ${error.message}`;
      if (now.isFull) throw new DriveError('TRANSIENT', `${text}; another one is in there`, { cause: error });
      throw new VolumeError('TRANSIENT', text, { cause: error });
    }
  }

  /**
   * Takes the cartridge out of a drive, and back to its slot; nothing where the drive is empty. It is tried again for the whole time: who has
   * just unmounted a cartridge may not have let go of the drive yet.
   * @param element of the drive, which need not be one of the library
   * @throws DriveError when it stays there; LibraryError
   */
  async unload(element: number, device: string, signal: AbortSignal): Promise<void> {
    const deadline = performance.now() + this.settings.seconds.unload * 1000;
    for (let pauseMs = AGAIN_MS.first; ; pauseMs = Math.min(2 * pauseMs, AGAIN_MS.most)) {
      const elements = await this.readElements(signal);
      const drive = findDrive(elements, element);
      if (!drive.isFull) return;
      const slot = chooseSlot(elements, drive);
      try {
        const values = { slot: slot.number, element, device, volume: drive.volume ?? '' };
        return void (await this.run('unload', values, signal));
      } catch (error) {
        if (!(error instanceof CommandFailure)) throw error;
        if (performance.now() + pauseMs > deadline) {
          const text = `drive ${element} of the changer does not give ${drive.volume ?? 'its cartridge'}: ${error.message}`;
          throw new DriveError('TRANSIENT', text, { cause: error });
        }
      }
      await sleep(pauseMs, undefined, { signal }).catch(() => signal.throwIfAborted());
    }
  }

  private async run(
    step: 'status' | 'load' | 'unload',
    values: Readonly<Record<string, string | number>>,
    signal: AbortSignal,
  ): Promise<string> {
    const { changer, commands, seconds } = this.settings;
    const lock = await this.locks.take(`changer ${changer}`, seconds.lock, signal);
    if (!lock) {
      throw new LibraryError('TRANSIENT', `the changer ${changer} was in use by another process for ${seconds.lock} s`);
    }
    try {
      const args = fill(commands[step], { ...values, changer });
      const running = runCommand(args, { seconds: seconds[step], lock: lock.fd, signal });
      lock.close(); // the command has it
      return await running;
    } finally {
      lock.close();
    }
  }
}
