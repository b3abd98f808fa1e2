/** The format of a backup's `manifest.json`. The backup's directory `postgres` contains the cluster's files. */
import { readFile } from 'node:fs/promises';
import path from 'node:path';
import { codeOf, messageOf } from '../../core/errors.js';
import { parseZonedTime } from '../../core/time.js';

export const CLUSTER = 'postgres';
export const MANIFEST = 'manifest.json';

const FORMAT = 1;

export interface BackedUpFile {
  path: string;
  size: number;
  sha256: string;
}

export interface Manifest {
  format: number;
  program: string;
  /** PostgreSQL's version, such as `18.4`, and its platform, such as `linux-x64`. */
  postgres: string;
  platform: string;
  /** When the backup started and ended, as ISO 8601 times in UTC. */
  startedAt: string;
  endedAt: string;
  directories: string[];
  files: BackedUpFile[];
}

export function makeManifest(given: Omit<Manifest, 'format' | 'platform'>): Manifest {
  return { format: FORMAT, platform: platformHere(), ...given };
}

export const sizeOf = ({ files }: Manifest): number => files.reduce((bytes, file) => bytes + file.size, 0);

/**
 * Reads a backup's manifest.
 * @throws Error if the directory `backup` is not a backup, or cannot be restored on this host
 */
export async function readManifest(backup: string): Promise<Manifest> {
  const file = path.join(backup, MANIFEST);
  const text = await readFile(file, 'utf8').catch((error) => {
    if (!['ENOENT', 'ENOTDIR'].includes(codeOf(error) ?? '')) throw error;
    throw new Error(`${backup} is not a complete backup: it has no ${MANIFEST}, which is written last`);
  });
  const manifest = parse(text, file);
  if (manifest.format !== FORMAT) {
    throw new Error(
      `${file} has format ${manifest.format}, but this version of Tapegate supports only format ${FORMAT}`,
    );
  }
  if (manifest.platform !== platformHere()) {
    throw new Error(`${backup} was created on ${manifest.platform}, but this host is ${platformHere()}`);
  }
  for (const name of [...manifest.directories, ...manifest.files.map((each) => each.path)]) {
    const parts = name.split('/');
    if (parts.some((part) => part === '' || part === '.' || part === '..')) {
      throw new Error(`${file}: ${JSON.stringify(name)} must be a relative path without "." or ".."`);
    }
  }
  return manifest;
}

function parse(text: string, file: string): Manifest {
  try {
    const manifest: Manifest = JSON.parse(text);
    if (!Array.isArray(manifest.directories) || !Array.isArray(manifest.files))
      throw new Error('it contains no list of files');
    const times = [manifest.startedAt, manifest.endedAt];
    if (times.some((time) => parseZonedTime(String(time)) === undefined))
      throw new Error('its start time or end time is missing or invalid');
    return manifest;
  } catch (error) {
    throw new Error(`cannot read ${file}: ${messageOf(error)}`, { cause: error });
  }
}

const platformHere = (): string => `${process.platform}-${process.arch}`;
