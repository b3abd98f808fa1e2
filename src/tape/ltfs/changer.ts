/**
 * The changer: one command at a time, over all drives and processes that share the locks. A command has the lock itself, so that one whose
 * process has died keeps others away until its move is done.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { oneLine, TapeError } from '../../errors.js';
import { DriveError, LibraryError, VolumeError } from '../backend.js';
import { CommandFailure, type LockFolder, runCommand } from './commands.js';
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

export interface Element {
  /** A port is where cartridges are put in and taken out: a slot that people use. */
  kind: 'drive' | 'slot' | 'port';
  /** As mtx counts: drives from 0, slots and ports together from 1. */
  number: number;
  isFull: boolean;
  /** The barcode; undefined where there is none, or none that could be read. */
  volume: string | undefined;
  /** Of a drive: the slot that its cartridge came from, where the changer knows. */
  source: number | undefined;
}

const TAGS = String.raw`(?:\s*:\s*VolumeTag\s*=\s*(?<volume>[^:]*?))?(?:\s*:\s*AlternateVolumeTag\s*=.*)?\s*$`;
const DRIVE = new RegExp(
  String.raw`^\s*Data Transfer Element (?<number>\d+):(?<state>Empty|Full)\s*(?:\((?:Storage Element (?<source>\d+)|Unknown Storage Element) Loaded\))?${TAGS}`,
);
const SLOT = new RegExp(
  String.raw`^\s*Storage Element (?<number>\d+)(?<port> IMPORT/EXPORT)?:(?<state>Empty|Full)${TAGS}`,
);

/** @throws LibraryError where it is no such list */
export function parseElements(status: string): Element[] {
  const elements: Element[] = [];
  for (const line of status.split('\n')) {
    const groups = (DRIVE.exec(line) ?? SLOT.exec(line))?.groups;
    if (!groups && /^\s*(Data Transfer|Storage) Element /.test(line)) {
      throw new LibraryError(
        'TRANSIENT',
        `the changer says of an element what is not understood: ${oneLine(line, 200)}`,
      );
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
  throw new LibraryError('TRANSIENT', `the changer tells of no drive: ${oneLine(status, 200) || 'it says nothing'}`);
}

/** @throws TapeError MEDIA when it is not there, or not one alone */
export function findVolume(elements: readonly Element[], volume: string): Element {
  const found = elements.filter((element) => element.volume === volume);
  if (found.length > 1) {
    const places = found.map(describeElement).join(' and ');
    throw new VolumeError('MEDIA', `the changer has several cartridges ${volume}, in ${places}`);
  }
  if (found[0]) return found[0];
  const unread = elements.filter(({ isFull, volume: barcode }) => isFull && barcode === undefined).length;
  const more = unread > 0 ? `; of ${unread} cartridges it knows no barcode` : '';
  throw new TapeError('MEDIA', `the changer has no cartridge ${volume}${more}`);
}

/** Cleaning cartridges have barcodes of their own, by the standard of their makers. */
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
 * Where the cartridge of a drive goes: to its own slot, or where that is taken or not known to one that is free. Ports are for people, unless it
 * came from there.
 * @throws LibraryError when all slots are taken
 */
export function chooseSlot(elements: readonly Element[], drive: Element): Element {
  const free = elements.filter((element) => element.kind !== 'drive' && !element.isFull);
  const slot = free.find(({ number }) => number === drive.source) ?? free.find(({ kind }) => kind === 'slot');
  if (slot) return slot;
  throw new LibraryError(
    'TRANSIENT',
    `no slot is free for the cartridge ${drive.volume ?? ''} in drive ${drive.number} of the changer`,
  );
}

export function describeElement({ kind, number }: Element): string {
  return kind === 'drive' ? `drive ${number}` : `slot ${number}`;
}
