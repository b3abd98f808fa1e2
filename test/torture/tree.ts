/** Trees of files to be archived, and what is known of them. */
import { createHash, randomBytes } from 'node:crypto';
import { mkdir, writeFile } from 'node:fs/promises';
import path from 'node:path';
import type { Random } from './random.js';

export interface Source {
  size: bigint;
  sha256: string;
}

export interface TreeOptions {
  /** Folder to be made. */
  dir: string;
  /** Logical path under which `archive` is to register it. */
  prefix: string;
  folders: number;
  files: number;
  maxBytes: number;
}

const MIN_BYTES = 1000;

/** Files of random bytes, many small and few large ones. @returns their logical paths and what they hold */
export async function makeTree(random: Random, options: TreeOptions): Promise<Map<string, Source>> {
  const sources = new Map<string, Source>();
  for (let n = 0; n < options.files; n++) {
    const below = `g${pad(n % options.folders)}/f${pad(n)}.nc`;
    const size = Math.round(MIN_BYTES * (options.maxBytes / MIN_BYTES) ** random.next());
    const bytes = randomBytes(size);
    const file = path.join(options.dir, below);
    await mkdir(path.dirname(file), { recursive: true });
    await writeFile(file, bytes);
    const sha256 = createHash('sha256').update(bytes).digest('hex');
    sources.set(`${options.prefix}/${below}`, { size: BigInt(size), sha256 });
  }
  return sources;
}

function pad(n: number): string {
  return String(n).padStart(3, '0');
}
