/** Options and counters that the parts of the doctor share during one examination. */

export interface DoctorOptions {
  /** Repairs findings; without it nothing is changed. */
  repair: boolean;
  /** Reads each copy and compares its checksum. */
  checksums: boolean;
  /** Adopts unrecorded files with the right bytes as Tapegate's copies. */
  adopt?: boolean;
}

export interface Examination extends DoctorOptions {
  counts: Record<'copies' | 'checksums' | 'notCompared' | 'files' | 'folders' | 'links', number>;
  mountpoints: string[];
  unavailable: Set<number>;
}
