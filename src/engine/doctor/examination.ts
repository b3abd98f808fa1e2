/** Options and counters that the parts of the doctor share during one examination. */

export interface DoctorOptions {
  /** Whether to repair findings. If false, the doctor changes nothing. */
  repair: boolean;
  /** Whether to read each copy and compare its checksum. */
  checksums: boolean;
  /** Whether to adopt files that Tapegate did not record, but whose bytes are correct, as Tapegate's copies. */
  adopt?: boolean;
}

export interface Examination extends DoctorOptions {
  counts: Record<'copies' | 'checksums' | 'notCompared' | 'files' | 'directories' | 'links', number>;
  mountpoints: string[];
  unavailable: Set<number>;
}
