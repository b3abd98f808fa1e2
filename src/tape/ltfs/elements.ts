/** What is where in a changer, as mtx tells it. Pure. */
import { oneLine, TapeError } from '../../errors.js';
import { DriveError, LibraryError, VolumeError } from '../backend.js';

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
