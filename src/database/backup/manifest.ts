/** What a backup of the embedded database says of itself: `manifest.json`, beside the folder `postgres` with the files of the cluster. */
import { readFile } from 'node:fs/promises';
import path from 'node:path';
import { codeOf, messageOf } from '../../errors.js';

/** In the folder of a backup. */
export const CLUSTER = 'postgres';
export const MANIFEST = 'manifest.json';

const FORMAT = 1;

export interface BackedUpFile {
  /** Below the cluster's folder. */
  path: string;
  size: number;
  /** Hex. */
  sha256: string;
}

export interface Manifest {
  format: number;
  /** The version of Tapegate that made it. */
  program: string;
  /** Of PostgreSQL, as `18.4`, and what it was compiled for, as `linux-x64`. */
  postgres: string;
  platform: string;
  /** The state that comes back is that of some moment between them. */
  startedAt: string;
  endedAt: string;
  folders: string[];
  files: BackedUpFile[];
}

export function makeManifest(given: Omit<Manifest, 'format' | 'platform'>): Manifest {
  return { format: FORMAT, platform: platformHere(), ...given };
}

export const sizeOf = ({ files }: Manifest): number => files.reduce((bytes, file) => bytes + file.size, 0);

/**
 * @param backup its folder
 * @throws Error where it is no backup, or not one that can be put back here
 */
export async function readManifest(backup: string): Promise<Manifest> {
  const file = path.join(backup, MANIFEST);
  const text = await readFile(file, 'utf8').catch((error) => {
    if (!['ENOENT', 'ENOTDIR'].includes(codeOf(error) ?? '')) throw error;
    throw new Error(`${backup} is no backup: it has no ${MANIFEST}, which is written when all the rest is there`);
  });
  const manifest = parse(text, file);
  if (manifest.format !== FORMAT) {
    throw new Error(`${file}: its format is ${manifest.format}, and this Tapegate knows format ${FORMAT}`);
  }
  if (manifest.platform !== platformHere()) {
    throw new Error(`${backup} was made on ${manifest.platform}, and this is ${platformHere()}`);
  }
  for (const name of [...manifest.folders, ...manifest.files.map((each) => each.path)]) {
    const parts = name.split('/');
    if (parts.some((part) => part === '' || part === '.' || part === '..')) {
      throw new Error(`${file}: ${JSON.stringify(name)} is no path below a folder`);
    }
  }
  return manifest;
}

function parse(text: string, file: string): Manifest {
  try {
    const manifest: Manifest = JSON.parse(text);
    if (!Array.isArray(manifest.folders) || !Array.isArray(manifest.files)) throw new Error('it lists no files');
    if (Number.isNaN(Date.parse(manifest.startedAt))) throw new Error('it does not say when it was made');
    return manifest;
  } catch (error) {
    throw new Error(`${file} cannot be read: ${messageOf(error)}`, { cause: error });
  }
}

const platformHere = (): string => `${process.platform}-${process.arch}`;
