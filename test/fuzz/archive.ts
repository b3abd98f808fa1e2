/** What stands on the tapes of the fuzz: the same in each run, so that whoever asks and whoever answers know it alike. */
import { createHash } from 'node:crypto';
import type { CatalogueRow } from '../../src/operations/catalogue/import-rows.js';
import type { Stage } from '../../src/stages.js';

export interface Taped {
  path: string;
  volume: string;
  position: bigint;
  bytes: Uint8Array;
  sha256: string;
  stage: Stage;
}

/** Bytes that each may hold: more than a double counts, all, some, hardly any, none. */
export const users: readonly { user: string; size: bigint }[] = [
  { user: 'ample', size: 2n ** 54n + 1n },
  { user: 'enough', size: 400_000n },
  { user: 'short', size: 20_000n },
  { user: 'tight', size: 1500n },
  { user: "o'neil 50% é/\u{1F600}", size: 100_000n },
];

export const volumes = ['V00001', 'V00002', 'V00003', 'V00004'];
const FILES = 240;
/** Names that some part of the way might take for something else. */
const ODD = [
  '%2F',
  '100%',
  'a b',
  "o'neil",
  'q"uote',
  '\\back',
  'é',
  'e\u0301',
  '\u{1F600}',
  '#?&=+',
  '_%_',
  '{}',
  '-rf',
];

export const archive: readonly Taped[] = Array.from({ length: FILES }, (_, n) => {
  const odd = n % 6 === 0 ? `${ODD[(n / 6) % ODD.length]}-` : '';
  const bytes = createBytes(n);
  return {
    path: `/data/${['ocean', 'ice', 'Sky'][n % 3]}/y${n % 10}/${odd}f${String(n).padStart(3, '0')}.nc`,
    volume: volumes[n % volumes.length] ?? '',
    position: BigInt(Math.floor(n / volumes.length) + 1),
    bytes,
    sha256: createHash('sha256').update(bytes).digest('hex'),
    stage: n % 20 === 7 ? 'ONDISK' : n % 20 === 13 ? 'UNVERIFIED' : 'ONTAPE',
  };
});

/** Up to 3,000, and for some none. */
function createBytes(n: number): Uint8Array {
  const size = n % 40 === 9 ? 0 : 1 + ((n * 7919) % 3000);
  return Uint8Array.from({ length: size }, (_, at) => (n * 31 + at * 17) & 0xff);
}

/** Rows of the catalogue as they are before anybody has changed them. */
export const rows: readonly CatalogueRow[] = archive.map((file, index) => ({
  line: index + 1,
  path: file.path,
  size: BigInt(file.bytes.length),
  stage: file.stage,
  verified: file.stage === 'UNVERIFIED' ? null : '2026-01-02T03:04:05.000006',
  spotName: `spot-${index % 4}`,
  volume: file.volume,
  position: file.position,
  checksum: `sha256:${file.sha256}`,
}));
