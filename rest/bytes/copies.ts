/** What the door for the bytes is given by the wiring: it knows no disk itself. */
import type { ServedCopy } from '../../src/operations/disks/copies.js';

export interface Copies {
  /** @param isPublic only where everybody on the copy's host may read it */
  open(copy: ServedCopy, how: { isPublic: boolean }): Promise<OpenCopy | ClosedCopy>;
}

/** To be closed by whoever has it. */
export interface OpenCopy {
  mtimeNs: bigint;
  /** @returns bytes read, from the position on: as many as the buffer takes, or the copy still has */
  read(buffer: Uint8Array, position: number): Promise<number>;
  isUnchanged(): Promise<boolean>;
  /** Where the disk hangs, once it answers: nobody waits for that. */
  close(): void;
}

export interface ClosedCopy {
  closed: 'absent' | 'gone' | 'changed' | 'private' | 'busy';
  /** For operators. */
  message: string;
}
