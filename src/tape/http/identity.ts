/** Certificates that a client trusts and shows: read anew when their files have changed, as those of a grid do every few hours. */
import { readFile, stat } from 'node:fs/promises';
import { createSecureContext, type SecureContextOptions } from 'node:tls';
import { messageOf } from '../../errors.js';
import { LibraryError } from '../backend.js';

/** Paths of PEM files; without `ca` the system's authorities are trusted. */
export interface IdentityFiles {
  ca?: string;
  cert?: string;
  key?: string;
}

export class Identity {
  private readonly files: [keyof IdentityFiles, string][];
  private known: { version: string; options: SecureContextOptions } = { version: '', options: {} };

  constructor(files: IdentityFiles) {
    this.files = Object.entries(files) as [keyof IdentityFiles, string][];
  }

  /**
   * @returns the same object until a file has changed
   * @throws LibraryError POLICY when one cannot be read, others may read the key, or they are no certificates
   */
  async read(): Promise<SecureContextOptions> {
    try {
      const stats = await Promise.all(this.files.map(([, file]) => stat(file)));
      const version = stats.map(({ ino, mtimeMs, size }) => `${ino} ${mtimeMs} ${size}`).join();
      if (version === this.known.version) return this.known.options;
      for (const [index, [part, file]] of this.files.entries()) {
        const mode = stats[index]?.mode ?? 0;
        if (part === 'key' && (mode & 0o007) !== 0)
          throw new Error(`everybody on this host may read ${file}: chmod o= is needed`);
      }
      const parts = await Promise.all(this.files.map(async ([part, file]) => [part, await readFile(file)] as const));
      const options: SecureContextOptions = Object.fromEntries(parts);
      createSecureContext(options); // what it refuses is told by its files' names, not by each connection
      this.known = { version, options };
      return options;
    } catch (error) {
      const names = this.files.map(([, file]) => file).join(', ');
      throw new LibraryError('POLICY', `the certificates (${names}) cannot be used: ${messageOf(error)}`, {
        cause: error,
      });
    }
  }
}
