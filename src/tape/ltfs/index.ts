/** The library type `ltfs`. Loads a changer's cartridges into drives, and mounts them read-only with LTFS. */
import path from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import { quote, TapeError } from '../../core/errors.js';
import { DriveError, type DriveLibrary } from '../drive-library.js';
import { programPath } from '../host-files.js';
import type { DriveKind, Site } from '../kind.js';
import { type ListableVolume, LtfsVolume } from './cartridge.js';
import { Changer } from './changer.js';
import { LockDirectory } from './commands.js';
import { Drive, DriveInUseError } from './drive.js';
import { type LtfsDrive, type LtfsSettings, longestSeconds, ltfsSettings, usualCommands } from './settings.js';

export const ltfs = {
  contract: 'drive',
  findsBy: 'path',
  settings: ltfsSettings,
  create: (settings: LtfsSettings, site: Site): LtfsLibrary => new LtfsLibrary(settings, site),
} satisfies DriveKind<LtfsSettings>;

function locateCommands(commands: LtfsSettings['commands'], env: Site['env']): LtfsSettings['commands'] {
  const located = Object.entries(commands).map(([step, command]) => {
    const isUsual = isDeepStrictEqual(command, usualCommands[step as keyof typeof usualCommands]);
    const [program = '', ...args] = command;
    return [step, isUsual ? command : [programPath(env, program), ...args]];
  });
  return Object.fromEntries(located);
}

/** Pattern for cartridge barcodes. Allows only a few characters, because a barcode becomes an argument of commands. */
const BARCODE = /^[A-Za-z0-9][\w.+-]{0,63}$/;

export class LtfsLibrary implements DriveLibrary {
  readonly ownSeconds: { mount: number; unmount: number };
  private readonly settings: LtfsSettings;
  private readonly locks: LockDirectory;
  private readonly changer: Changer;

  constructor(given: LtfsSettings, { dataDir, env }: Site) {
    const settings = { ...given, commands: locateCommands(given.commands, env) };
    this.settings = settings;
    this.ownSeconds = longestSeconds(settings);
    this.locks = new LockDirectory(settings.locks ?? path.join(path.resolve(dataDir), 'ltfs'));
    this.changer = new Changer(settings, this.locks);
  }

  async mount(volume: string, driveName: string, signal: AbortSignal): Promise<ListableVolume> {
    return await this.open(volume, this.findDrive(driveName), this.settings.seconds.lock, signal);
  }

  /**
   * Mounts a cartridge in the first of the library's drives that no other process uses.
   * @throws TapeError; DriveInUseError if all drives are in use
   */
  async mountAnywhere(volume: string, signal: AbortSignal): Promise<ListableVolume> {
    for (const drive of this.settings.drives.values()) {
      try {
        return await this.open(volume, drive, 0, signal);
      } catch (error) {
        if (!(error instanceof DriveInUseError)) throw error;
      }
    }
    const names = [...this.settings.drives.keys()].join(', ');
    throw new DriveInUseError('TRANSIENT', `all drives of the library are in use: ${names}`);
  }

  private async open(
    volume: string,
    drive: LtfsDrive,
    waitSeconds: number,
    signal: AbortSignal,
  ): Promise<ListableVolume> {
    signal.throwIfAborted();
    const { settings, locks, changer } = this;
    if (!BARCODE.test(volume)) throw new TapeError('PERMANENT', `${quote(volume)} is not a valid cartridge barcode`);
    const how = { drive: new Drive(drive, { settings, locks, changer }), settings, waitSeconds };
    return await LtfsVolume.open(volume, how, signal);
  }

  private findDrive(name: string): LtfsDrive {
    const { drives } = this.settings;
    const drive = drives.get(name);
    if (drive) return drive;
    const names = [...drives.keys()].join(', ');
    throw new DriveError('POLICY', `the library has no drive ${name} in its settings, only ${names}`);
  }
}
