import path from 'node:path';
import { z } from 'zod';
import { quote } from '../../core/errors.js';
import { PLAIN_NAME } from '../host-files.js';
import { expects, file, integer, seconds, settingsOf, text, texts } from '../kind.js';

/**
 * Placeholders that must be whole arguments in a command. Tapegate does not trust their values, which come from the
 * catalogue or the cartridge.
 */
const WHOLE = ['volume', 'file'];

/**
 * Returns the schema of a setting that contains a command for a step such as `load`.
 * @param known the placeholders that the command can contain
 */
function commandOf(usual: string, known: readonly string[]) {
  const has = `valid placeholders: ${known.map((each) => `{${each}}`).join(', ')}`;
  const findFault = (command: readonly string[]): string | undefined => {
    for (const argument of command) {
      for (const [placeholder, name = ''] of argument.matchAll(/\{(\w*)\}/g)) {
        if (!known.includes(name)) return `must not contain the placeholder ${placeholder}; ${has}`;
        if (WHOLE.includes(name) && argument !== placeholder)
          return `must have ${placeholder} as a separate argument, not in ${quote(argument)}`;
      }
    }
    const [program = ''] = command;
    return PLAIN_NAME.test(program)
      ? undefined
      : `must begin with the file name of a program in TAPEGATE_LIBRARY_DIR/programs, not ${quote(program)}`;
  };
  return texts()
    .superRefine((command, ctx) => {
      const fault = findFault(command);
      if (fault !== undefined) ctx.addIssue(fault);
    })
    .default(usual.split(' '));
}

const MOVED = ['changer', 'slot', 'element', 'device', 'volume'];
const MOUNTED = ['device', 'mountPoint', 'element'];

const commands = settingsOf({
  status: commandOf('mtx -f {changer} status', ['changer']),
  load: commandOf('mtx -f {changer} load {slot} {element}', MOVED),
  unload: commandOf('mtx -f {changer} unload {slot} {element}', MOVED),
  mount: commandOf('ltfs -o devname={device} -o ro {mountPoint}', [...MOUNTED, 'volume']),
  unmount: commandOf('umount {mountPoint}', MOUNTED),
  startBlock: commandOf('getfattr --absolute-names --only-values -n user.ltfs.startblock {file}', ['file']),
});

/**
 * Time limits for the steps of mounting and unmounting. LTFS can take many minutes to read the index of a damaged
 * cartridge.
 */
const timeLimits = settingsOf({
  status: seconds().default(120),
  load: seconds().default(300),
  unload: seconds().default(300),
  mount: seconds().default(600),
  unmount: seconds().default(300),
  startBlock: seconds().default(60),
  lock: seconds().default(60).describe('maximum time to wait for a drive or changer that another process uses'),
});

/** Schema of a device name. Rejects commas, because a comma would end the value of an `ltfs` option. */
const device = () => text('a device name without spaces or commas', /^[^-\s,][^\s,]*$/);

const driveSettings = settingsOf({
  device: device().describe('device name to pass to `ltfs`'),
  element: integer(0, 9999).describe("number of the drive's data transfer element in the changer"),
  mountPoint: file().transform((given) => path.resolve(given)),
});

export interface LtfsDrive extends z.output<typeof driveSettings> {
  name: string;
}

const DRIVES = expects('an object that maps the name of each drive to device, element and mountPoint');

const directory = () => file().transform((given) => path.posix.normalize(given).replace(/(?<=.)\/$/, ''));

export const ltfsSettings = settingsOf({
  changer: device().describe("the changer's device"),
  drives: z
    .record(z.string(), driveSettings, DRIVES)
    .refine((drives) => Object.keys(drives).length > 0, DRIVES)
    .transform((drives, ctx) => nameDrives(drives, ctx))
    .describe('drives by name'),
  root: directory().default('/').describe('directory on each cartridge that contains the files below `prefix`'),
  prefix: directory().default('/').describe('catalogue prefix that corresponds to `root`'),
  locks: file().optional().describe('directory for lock files; default: in the data directory'),
  mountTable: file().default('/proc/self/mountinfo').describe('path of the mount table'),
  commands: commands.prefault({}).describe('commands that mount and unmount cartridges, by step'),
  seconds: timeLimits.prefault({}).describe('time limit for each step, in seconds'),
});

/** The default commands, which run programs from the system's PATH. */
export const usualCommands = commands.parse({});

export type LtfsSettings = z.output<typeof ltfsSettings>;

function nameDrives(drives: Record<string, z.output<typeof driveSettings>>, ctx: z.RefinementCtx) {
  const named = new Map<string, LtfsDrive>();
  for (const [name, drive] of Object.entries(drives)) {
    for (const other of named.values()) {
      for (const part of ['device', 'element', 'mountPoint'] as const) {
        const message = `must not be ${quote(String(drive[part]))}, which the drive ${other.name} already uses`;
        if (drive[part] === other[part]) ctx.addIssue({ code: 'custom', path: [name, part], message });
      }
    }
    named.set(name, { name, ...drive });
  }
  return named;
}

/**
 * Replaces the placeholders in a command's arguments with their values. Each value stays in one argument, even if it
 * contains spaces.
 */
export function fill(command: readonly string[], values: Readonly<Record<string, string | number>>): string[] {
  return command.map((argument) => argument.replace(/\{(\w+)\}/g, (_, name: string) => String(values[name] ?? '')));
}

/** Maximum time, in seconds, needed to stop a command that has exceeded its time limit. */
const KILL_SECONDS = 20;

/**
 * Returns the maximum duration of a mount and of an unmount, in seconds, computed from the time limits of all commands.
 */
export function longestSeconds({ seconds: limits }: Pick<LtfsSettings, 'seconds'>): { mount: number; unmount: number } {
  const changed = (step: 'status' | 'load' | 'unload') => limits.lock + limits[step] + KILL_SECONDS;
  const clear = 2 * (limits.unmount + KILL_SECONDS);
  const unload = limits.unload + changed('status') + changed('unload');
  const empty = clear + unload;
  const mount = limits.lock + 3 * empty + 3 * changed('status') + changed('load') + limits.mount + KILL_SECONDS;
  return { mount, unmount: empty };
}
