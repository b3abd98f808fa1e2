/** Files on the tapes of the fuzz test. All runs have the same files. */
import { createHash } from 'node:crypto';
import type { Stage } from '../../src/core/stages.js';
import type { CatalogueRow } from '../../src/domain/import/import-rows.js';

/**
 * Users with different quotas: more bytes than a double represents exactly, enough for all files, for some files, or
 * for few files,
 * and zero.
 */
export const users: readonly { user: string; size: bigint }[] = [
  { user: 'ample', size: 2n ** 54n + 1n },
  { user: 'enough', size: 400_000n },
  { user: 'short', size: 20_000n },
  { user: 'tight', size: 1500n },
  { user: "o'neil 50% é/\u{1F600}", size: 100_000n },
];

export const volumes = ['V00001', 'V00002', 'V00003', 'V00004'];
const FILES = 240;
/** Names with characters that are special in URLs, SQL, shells or file systems. */
const ODD = `%2F|100%|a b|o'neil|q"uote|\\back|é|e\u0301|\u{1F600}|#?&=+|_%_|{}|-rf`.split('|');

export const archive = Array.from({ length: FILES }, (_, n) => {
  const odd = n % 6 === 0 ? `${ODD[(n / 6) % ODD.length]}-` : '';
  const sizeBytes = n % 40 === 9 ? 0 : 1 + ((n * 7919) % 3000);
  const bytes = Uint8Array.from({ length: sizeBytes }, (_, at) => (n * 31 + at * 17) & 0xff);
  const stage: Stage = n % 20 === 7 ? 'ONDISK' : n % 20 === 13 ? 'UNVERIFIED' : 'ONTAPE';
  return {
    path: `/data/${['ocean', 'ice', 'Sky'][n % 3]}/y${n % 10}/${odd}f${String(n).padStart(3, '0')}.nc`,
    volume: volumes[n % volumes.length] ?? '',
    position: BigInt(Math.floor(n / volumes.length) + 1),
    bytes,
    size: BigInt(bytes.length),
    sha256: createHash('sha256').update(bytes).digest('hex'),
    stage,
  };
});

/** Catalogue rows at the start of each run. */
export const rows: readonly CatalogueRow[] = archive.map(({ bytes: _, sha256, ...file }, index) => ({
  ...file,
  line: index + 1,
  verified: file.stage === 'UNVERIFIED' ? null : '2026-01-02T03:04:05.000006',
  spotName: `spot-${index % 4}`,
  checksum: `sha256:${sha256}`,
}));
