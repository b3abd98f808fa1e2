/** What the parts of the doctor share while it looks at everything once. */

/** What an operator asks of the doctor. */
export interface DoctorOptions {
  /** Mend what can be mended; without it nothing is changed. */
  repair: boolean;
  /** Read each copy and compare its checksum. */
  checksums: boolean;
  /** Take files with the right bytes for Tapegate's own copies where nobody has noted them. */
  adopt?: boolean;
}

/** One run of the doctor. */
export interface Examination extends DoctorOptions {
  /** What was looked at. */
  counts: Record<'copies' | 'checksums' | 'notCompared' | 'files' | 'folders' | 'links', number>;
  mountpoints: string[];
  /** Ids of disks that are not there. */
  unavailable: Set<number>;
}
