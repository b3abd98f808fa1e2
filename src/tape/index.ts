/** The registry: one line a back end. TAPE_BACKEND takes these names. */
import path from 'node:path';
import type { WritableBackend } from './backend.js';
import { createDirectoryBackend } from './directory.js';
import { createMemoryBackend } from './memory.js';

/** What a back end may be made from. */
export interface BackendOptions {
  dataDir: string;
}

const backends: Record<string, (options: BackendOptions) => WritableBackend> = {
  directory: ({ dataDir }) => createDirectoryBackend(path.join(dataDir, 'library')),
  memory: () => createMemoryBackend(),
};

/** Its volumes are in the memory of the process that made it. */
export function isOfOneProcess(name: string): boolean {
  return name === 'memory';
}

export const backendNames = Object.keys(backends);

/** @param name one of `backendNames` */
export function createBackend(name: string, options: BackendOptions): WritableBackend {
  const create = backends[name];
  if (!create)
    throw new Error(`there is no tape back end ${JSON.stringify(name)}; there are ${backendNames.join(', ')}`);
  return create(options);
}
