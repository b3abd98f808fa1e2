/** The kind `directory`: a folder for each volume, in it a file for each position. Its one setting is the library's folder. */
import { createDirectoryBackend } from './directory.js';
import { type DriveKind, readSettings } from './kind.js';

export const directory: DriveKind<{ folder: string }> = {
  contract: 'drive',
  findsBy: 'position',
  parse: (settings) => ({ folder: readSettings(settings, ['folder']).file('folder') }),
  create: ({ folder }) => createDirectoryBackend(folder),
};
