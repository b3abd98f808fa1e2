/**
 * Controls the changer of an LTFS library. Before a process runs a changer command, it takes a lock in the lock
 * directory, so that only one changer command runs at a time. A running command keeps the lock even if its parent
 * process dies.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { oneLine, TapeError } from '../../core/errors.js';
import { DriveError, LibraryError, VolumeError } from '../drive-library.js';
import { CommandFailure, type LockDirectory, runCommand } from './commands.js';
import { fill, type LtfsDrive, type LtfsSettings } from './settings.js';

/** Minimum and maximum pause between two attempts to unload a drive. */
const AGAIN_MS = { first: 250, most: 5000 };

export class Changer {
  private readonly settings: LtfsSettings;
  private readonly locks: LockDirectory;

  constructor(settings: LtfsSettings, locks: LockDirectory) {
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
   * Moves a cartridge into an empty drive.
   * @throws DriveError if another cartridge is in the drive
   * @throws VolumeError if the move fails for another reason
   */
  async load(volume: string, from: Element, drive: LtfsDrive, signal: AbortSignal): Promise<void> {
    const { device, element } = drive;
    try {
      await this.run('load', { slot: from.number, element, device, volume }, signal);
    } catch (error) {
      if (!(error instanceof CommandFailure)) throw error;
      // the cartridge might be in the drive despite the error, for example because another process has moved it there
      const now = findDrive(await this.readElements(signal), element);
      if (now.volume === volume) return;
      const text = `cannot load the cartridge ${volume} into ${drive.name}: ${error.message}`;
      if (now.isFull)
        throw new DriveError('TRANSIENT', `${text}; the drive contains another cartridge`, { cause: error });
      throw new VolumeError('TRANSIENT', text, { cause: error });
    }
  }

  /**
   * Moves the cartridge from a drive to a slot. Retries failed moves until the time limit in the settings. Does nothing
   * if the drive is empty.
   * @param element the drive's number in the changer; the drive can belong to another library
   * @throws DriveError if the cartridge stays in the drive
   * @throws LibraryError
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
          const text = `the changer cannot unload ${drive.volume ?? 'the cartridge'} from drive ${element}: ${error.message}`;
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
      // close this process's descriptor now; the running command has inherited the lock, and holds it until it exits
      lock.close();
      return await running;
    } finally {
      lock.close();
    }
  }
}

export interface Element {
  /** A port is an import/export slot, through which operators insert and remove cartridges. */
  kind: 'drive' | 'slot' | 'port';
  /** Number of the element in the output of `mtx`. Drives are numbered from 0, and slots and ports together from 1. */
  number: number;
  isFull: boolean;
  /** Barcode of the cartridge; undefined if the element is empty or the barcode is unreadable. */
  volume: string | undefined;
  /** Number of the slot from which the changer moved the cartridge to the drive; undefined if unknown. */
  source: number | undefined;
}

const TAGS = String.raw`(?:\s*:\s*VolumeTag\s*=\s*(?<volume>[^:]*?))?(?:\s*:\s*AlternateVolumeTag\s*=.*)?\s*$`;
const DRIVE = new RegExp(
  String.raw`^\s*Data Transfer Element (?<number>\d+):(?<state>Empty|Full)\s*(?:\((?:Storage Element (?<source>\d+)|Unknown Storage Element) Loaded\))?${TAGS}`,
);
const SLOT = new RegExp(
  String.raw`^\s*Storage Element (?<number>\d+)(?<port> IMPORT/EXPORT)?:(?<state>Empty|Full)${TAGS}`,
);

/** Parses the output of `mtx status`. @throws LibraryError if the output does not have the expected format */
export function parseElements(status: string): Element[] {
  const elements: Element[] = [];
  for (const line of status.split('\n')) {
    const groups = (DRIVE.exec(line) ?? SLOT.exec(line))?.groups;
    if (!groups && /^\s*(Data Transfer|Storage) Element /.test(line)) {
      throw new LibraryError('TRANSIENT', `cannot parse the changer's report of an element: ${oneLine(line, 200)}`);
    }
    if (!groups) continue;
    const isDrive = DRIVE.test(line);
    elements.push({
      kind: isDrive ? 'drive' : groups.port === undefined ? 'slot' : 'port',
      number: Number(groups.number),
      isFull: groups.state === 'Full',
      volume: groups.volume?.trim() || undefined,
      source: groups.source === undefined ? undefined : Number(groups.source),
    });
  }
  if (elements.some(({ kind }) => kind === 'drive')) return elements;
  throw new LibraryError('TRANSIENT', `the changer reports no drive: ${oneLine(status, 200) || 'no output'}`);
}

/**
 * Finds the element that contains a cartridge.
 * @throws TapeError MEDIA unless exactly one cartridge in the changer has the barcode `volume`
 */
export function findVolume(elements: readonly Element[], volume: string): Element {
  const found = elements.filter((element) => element.volume === volume);
  if (found.length > 1) {
    const places = found.map(describeElement).join(' and ');
    throw new VolumeError('MEDIA', `the changer has several cartridges with the barcode ${volume}: in ${places}`);
  }
  if (found[0]) return found[0];
  const unread = elements.filter(({ isFull, volume: barcode }) => isFull && barcode === undefined).length;
  const more = unread > 0 ? `; cartridges without a known barcode: ${unread}` : '';
  throw new TapeError('MEDIA', `the changer has no cartridge ${volume}${more}`);
}

/**
 * Returns whether an element contains a cleaning cartridge. By the manufacturers' standard, barcodes of cleaning
 * cartridges begin with CLN.
 */
export function isCleaning({ volume }: Element): boolean {
  return volume?.startsWith('CLN') ?? false;
}

/** @throws DriveError */
export function findDrive(elements: readonly Element[], number: number): Element {
  const drive = elements.find((element) => element.kind === 'drive' && element.number === number);
  if (drive) return drive;
  const numbers = elements.filter(({ kind }) => kind === 'drive').map((element) => element.number);
  throw new DriveError('POLICY', `the changer has no drive ${number}, only ${numbers.join(', ')}`);
}

/**
 * Returns a free slot for the cartridge that is in a drive, preferably the cartridge's previous slot. Does not choose a
 * port, unless the port is the previous slot, because operators need the ports.
 * @throws LibraryError if no slot is free
 */
export function chooseSlot(elements: readonly Element[], drive: Element): Element {
  const free = elements.filter((element) => element.kind !== 'drive' && !element.isFull);
  const slot = free.find(({ number }) => number === drive.source) ?? free.find(({ kind }) => kind === 'slot');
  if (slot) return slot;
  throw new LibraryError(
    'TRANSIENT',
    `the changer has no free slot for the cartridge ${drive.volume ?? ''}, which is in drive ${drive.number}`,
  );
}

function describeElement({ kind, number }: Element): string {
  return kind === 'drive' ? `drive ${number}` : `slot ${number}`;
}
