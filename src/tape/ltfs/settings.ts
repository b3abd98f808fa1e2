/** The settings of an LTFS library: its changer, its drives, and the commands that move and mount cartridges. */
import path from 'node:path';
import { quote, SettingsError } from '../../errors.js';
import { readSettings, type SettingsReader } from '../kind.js';

/** What is done by a command; each has its time limit. */
export type Step = keyof typeof steps;

interface StepDefault {
  command: string[];
  /** A robot takes up to a minute, and rewinding two; the index of a cartridge is read in minutes, searched for in many where it is damaged. */
  seconds: number;
  /** What its arguments may name. */
  placeholders: string[];
}

const steps = {
  status: { command: ['mtx', '-f', '{changer}', 'status'], seconds: 120, placeholders: ['changer'] },
  load: {
    command: ['mtx', '-f', '{changer}', 'load', '{slot}', '{element}'],
    seconds: 300,
    placeholders: ['changer', 'slot', 'element', 'device', 'volume'],
  },
  unload: {
    command: ['mtx', '-f', '{changer}', 'unload', '{slot}', '{element}'],
    seconds: 300,
    placeholders: ['changer', 'slot', 'element', 'device', 'volume'],
  },
  mount: {
    command: ['ltfs', '-o', 'devname={device}', '-o', 'ro', '{mountPoint}'],
    seconds: 600,
    placeholders: ['device', 'mountPoint', 'element', 'volume'],
  },
  unmount: { command: ['umount', '{mountPoint}'], seconds: 300, placeholders: ['device', 'mountPoint', 'element'] },
  startBlock: {
    command: ['getfattr', '--absolute-names', '--only-values', '-n', 'user.ltfs.startblock', '{file}'],
    seconds: 60,
    placeholders: ['file'],
  },
} satisfies Record<string, StepDefault>;

/** They come from the catalogue and from the cartridge: whatever is in them, they are arguments of their own. */
const WHOLE = ['volume', 'file'];

/** Seconds that a drive or the changer is waited for while another process uses it. */
const LOCK_SECONDS = 60;

export interface LtfsDrive {
  name: string;
  /** As `ltfs` knows it. */
  device: string;
  /** The changer's number of it: its data transfer element. */
  element: number;
  mountPoint: string;
}

export interface LtfsSettings {
  changer: string;
  /** By their names. */
  drives: ReadonlyMap<string, LtfsDrive>;
  /** The folder of a cartridge that holds what is below `prefix`. */
  root: string;
  /** The logical folder that `root` stands for. */
  prefix: string;
  /** Where the locks are; undefined: in the data folder. */
  locks: string | undefined;
  /** Where the system tells what is mounted. */
  mountTable: string;
  commands: Readonly<Record<Step, readonly string[]>>;
  seconds: Readonly<Record<Step | 'lock', number>>;
}

const NAMES = ['changer', 'drives', 'root', 'prefix', 'locks', 'mountTable', 'commands', 'seconds'];

/** @throws SettingsError */
export function parseSettings(settings: unknown): LtfsSettings {
  const read = readSettings(settings, NAMES);
  const { drives, commands, seconds } = settings as Record<string, unknown>;
  return {
    changer: read.text('changer'),
    drives: readDrives(drives),
    root: readFolder(read, 'root'),
    prefix: readFolder(read, 'prefix'),
    locks: read.file('locks', undefined),
    mountTable: read.file('mountTable', '/proc/self/mountinfo'),
    commands: readCommands(commands ?? {}),
    seconds: readSeconds(seconds ?? {}),
  };
}

function readFolder(read: SettingsReader, name: string): string {
  const folder = path.posix.normalize(read.file(name, '/'));
  return folder === '/' ? '/' : folder.replace(/\/$/, '');
}

function readDrives(drives: unknown): LtfsSettings['drives'] {
  const expected = 'an object that has device, element and mountPoint for the name of each drive';
  if (drives === undefined || drives === null) throw new SettingsError('drives', `must be given: ${expected}`);
  const isObject = typeof drives === 'object' && !Array.isArray(drives) && Object.keys(drives).length > 0;
  if (!isObject) throw new SettingsError('drives', `must be ${expected}, not ${shown(drives)}`);
  const found = new Map<string, LtfsDrive>();
  for (const [name, given] of Object.entries(drives)) {
    const drive = within(`drives.${name}`, () => {
      const read = readSettings(given, ['device', 'element', 'mountPoint']);
      const element = read.integer('element', { least: 0, most: 9999 });
      return { name, device: read.text('device'), element, mountPoint: path.resolve(read.file('mountPoint')) };
    });
    for (const other of found.values()) refuseShared(drive, other);
    found.set(name, drive);
  }
  return found;
}

function refuseShared(drive: LtfsDrive, other: LtfsDrive): void {
  for (const part of ['device', 'element', 'mountPoint'] as const) {
    if (drive[part] !== other[part]) continue;
    throw new SettingsError(
      `drives.${drive.name}.${part}`,
      `is ${quote(String(drive[part]))}, as is that of ${other.name}`,
    );
  }
}

function readCommands(given: unknown): LtfsSettings['commands'] {
  return within('commands', () => {
    const read = readSettings(given, Object.keys(steps));
    return ofEachStep((step) => {
      const command = read.list(step, steps[step].command);
      checkPlaceholders(step, command);
      return command;
    });
  });
}

function checkPlaceholders(step: Step, command: readonly string[]): void {
  const known: readonly string[] = steps[step].placeholders;
  for (const argument of command) {
    for (const [placeholder, name = ''] of argument.matchAll(/\{(\w*)\}/g)) {
      const has = `it has ${known.map((each) => `{${each}}`).join(', ')}`;
      if (!known.includes(name)) throw new SettingsError(step, `has no placeholder ${placeholder}; ${has}`);
      if (!WHOLE.includes(name) || argument === placeholder) continue;
      throw new SettingsError(step, `must have ${placeholder} as an argument of its own, not in ${quote(argument)}`);
    }
  }
  if (/\{\w*\}/.test(command[0] ?? ''))
    throw new SettingsError(step, `must begin with a program, not ${quote(command[0] ?? '')}`);
}

function readSeconds(given: unknown): LtfsSettings['seconds'] {
  return within('seconds', () => {
    const read = readSettings(given, [...Object.keys(steps), 'lock']);
    const readOne = (name: string, fallback: number) => read.integer(name, { least: 1, most: 86_400, fallback });
    return { ...ofEachStep((step) => readOne(step, steps[step].seconds)), lock: readOne('lock', LOCK_SECONDS) };
  });
}

function ofEachStep<T>(read: (step: Step) => T): Record<Step, T> {
  return {
    status: read('status'),
    load: read('load'),
    unload: read('unload'),
    mount: read('mount'),
    unmount: read('unmount'),
    startBlock: read('startBlock'),
  };
}

/** A setting within another one is named with it. */
function within<T>(name: string, read: () => T): T {
  try {
    return read();
  } catch (error) {
    if (!(error instanceof SettingsError)) throw error;
    const setting = error.setting === 'settings' ? name : `${name}.${error.setting}`;
    throw new SettingsError(setting, error.message.slice(error.setting.length + 1));
  }
}

function shown(value: unknown): string {
  return quote(JSON.stringify(value) ?? 'nothing').slice(1, -1);
}

/** The arguments of a command; what stands for a placeholder never becomes two of them. */
export function fill(command: readonly string[], values: Readonly<Record<string, string | number>>): string[] {
  return command.map((argument) => argument.replace(/\{(\w+)\}/g, (_, name: string) => String(values[name] ?? '')));
}
