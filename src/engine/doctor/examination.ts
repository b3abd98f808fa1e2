/** Options and counters that the doctor's checks share during one examination. */

export interface DoctorOptions {
  /** Whether to repair findings; if false, the doctor changes nothing. */
  repair: boolean;
  /** Whether to read each copy and compare its checksum. */
  checksums: boolean;
  /** Whether to adopt an unrecorded file as Tapegate's copy if the file has the same bytes as the expected copy. */
  adopt?: boolean;
}

export interface Examination extends DoctorOptions {
  counts: Record<'copies' | 'checksums' | 'notCompared' | 'files' | 'directories' | 'links', number>;
  mountpoints: string[];
  unavailable: Set<number>;
}
