/** Options and counters that the doctor's parts share during one examination. */

export interface DoctorOptions {
  /** Whether to repair findings; if false, the doctor changes nothing. */
  repair: boolean;
  /** Whether to read each copy and compare its checksum. */
  checksums: boolean;
  /** Whether to adopt unrecorded files with correct bytes as Tapegate's copies. */
  adopt?: boolean;
}

export interface Examination extends DoctorOptions {
  counts: Record<'copies' | 'checksums' | 'notCompared' | 'files' | 'directories' | 'links', number>;
  mountpoints: string[];
  unavailable: Set<number>;
}
