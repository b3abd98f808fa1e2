/** A simulated tape changer made of scripts, and an LTFS library that uses the changer. */
import { appendFileSync, existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { packageRoot } from '../../../src/core/package-root.js';
import { parseSettings } from '../../../src/tape/kind.js';
import { type LtfsLibrary, ltfs } from '../../../src/tape/ltfs/index.js';
import type { LtfsSettings } from '../../../src/tape/ltfs/settings.js';
import { LIBRARY_ENV } from '../library-dir.js';
import { makeTempDir } from '../temp-dir.js';
import { waitFor } from '../wait.js';

type Step = 'status' | 'load' | 'unload' | 'mount' | 'unmount' | 'startBlock' | 'end';

interface Behaviour {
  slowMs?: number;
  /** Message of the failing step. Without a message, the step succeeds. */
  fail?: string;
  /** Whether the step blocks before or after its work, until `goOn` is called. */
  hold?: 'before' | 'after';
}

export interface Slot {
  volume: string | null;
  isPort?: boolean;
}

export interface ChangerState {
  slots: Slot[];
  drives: { volume: string | null; source: number | null }[];
}

const program = (name: string) => ['sh', path.join(packageRoot, 'test/support/ltfs/stand-in.sh'), name];

export interface LtfsBench {
  /** Directory with the state of the changer's scripts. */
  state: string;
  dataDir: string;
  settings: Record<string, unknown>;
  library: LtfsLibrary;
  /**
   * Opens the library as another process would. Processes share only the changer and the lock files.
   * @param seconds time limits that may be shorter than settings allow
   */
  reopen(changes?: Record<string, unknown>, seconds?: Partial<LtfsSettings['seconds']>): LtfsLibrary;
  /**
   * Writes a file to a cartridge. A new cartridge is put into the next free slot.
   * Without a position, the file has no start block.
   */
  put(volume: string, position: bigint | null, bytes: Uint8Array, file: string): Promise<void>;
  readChanger(): ChangerState;
  changeChanger(change: (changer: ChangerState) => void): void;
  behave(step: Step, behaviour: Behaviour): void;
  /** Resets a step to its usual behaviour, and resumes a blocked step. */
  goOn(step: Step): void;
  waitUntilHeld(step: Step): Promise<void>;
  mounts(): string;
  /** Lines of the log, which records when steps begin and end. */
  log(): string[];
  close(): Promise<void>;
}

export const SLOTS = 8;

/** @param options.drives number of drives, named `drive-1` and so on, or after `name` */
export function createLtfsBench({ drives = 2, name = 'drive' }: { drives?: number; name?: string } = {}): LtfsBench {
  const state = makeTempDir();
  const numbers = Array.from({ length: drives }, (_, number) => number);
  for (const directory of ['cartridges', 'behave', 'reached', 'data', ...numbers.map((number) => `mnt/${number}`)]) {
    mkdirSync(path.join(state, directory), { recursive: true });
  }
  writeFileSync(path.join(state, 'mounts'), '');
  const contents = path.join(state, 'contents');
  const write = (changer: ChangerState) => writeFileSync(contents, printContents(changer));
  const readChanger = () => parseContents(readFileSync(contents, 'utf8'));
  const slots = Array.from({ length: SLOTS }, (_, index) => ({ volume: null, isPort: index === SLOTS - 1 }));
  write({ slots, drives: numbers.map(() => ({ volume: null, source: null })) });
  const dataDir = path.join(state, 'data');
  const settings = settingsOf(state, numbers, name);
  const reopen = (changes = {}, seconds = {}) => {
    const parsed = parseSettings(ltfs.settings, { ...settings, ...changes });
    return ltfs.create(
      { ...parsed, seconds: { ...parsed.seconds, ...seconds } },
      { name: 'lto', dataDir, env: LIBRARY_ENV },
    );
  };
  const behaviour = (step: Step) => path.join(state, 'behave', step);
  return {
    ...{ state, dataDir, settings, readChanger, reopen },
    library: reopen(),
    put: async (volume, position, bytes, file) => putFile(state, { volume, position, bytes, file }, readChanger, write),
    changeChanger: (change) => {
      const changer = readChanger();
      change(changer);
      write(changer);
    },
    behave: (step, { hold = '-', slowMs = 0, fail = '' }) =>
      writeFileSync(behaviour(step), `${hold} ${slowMs / 1000}\n${fail}`),
    goOn: (step) => rmSync(behaviour(step), { force: true }),
    waitUntilHeld: async (step) => {
      const reached = path.join(state, 'reached', step);
      await waitFor(`${step} to be held`, async () => existsSync(reached) || undefined);
    },
    mounts: () => readFileSync(path.join(state, 'mounts'), 'utf8'),
    log: () => readFileSync(path.join(state, 'log'), 'utf8').split('\n').filter(Boolean),
    close: async () => await closeBench(state),
  };
}

/** Prints the changer's state in the format that stand-in.sh documents. */
function printContents({ slots, drives }: ChangerState): string {
  const lines = [
    ...slots.map(({ volume, isPort }, index) => [isPort ? 'port' : 'slot', index + 1, volume ?? '-']),
    ...drives.map(({ volume, source }, number) => ['drive', number, volume ?? '-', source ?? '']),
  ];
  return lines.map((line) => `${line.join(' ')}\n`).join('');
}

function parseContents(text: string): ChangerState {
  const changer: ChangerState = { slots: [], drives: [] };
  for (const line of text.trimEnd().split('\n')) {
    const [kind, , name, source] = line.split(' ');
    const volume = name === '-' ? null : (name ?? null);
    if (kind === 'drive') changer.drives.push({ volume, source: source ? Number(source) : null });
    else changer.slots.push({ volume, isPort: kind === 'port' });
  }
  return changer;
}

function settingsOf(state: string, numbers: readonly number[], name: string): Record<string, unknown> {
  const drives = numbers.map((number) => {
    const places = { device: path.join(state, `sg${number}`), mountPoint: path.join(state, `mnt/${number}`) };
    return [`${name}-${number + 1}`, { ...places, element: number }];
  });
  return {
    changer: path.join(state, 'changer'),
    drives: Object.fromEntries(drives),
    mountTable: path.join(state, 'mounts'),
    commands: {
      status: [...program('mtx'), '-f', '{changer}', 'status'],
      load: [...program('mtx'), '-f', '{changer}', 'load', '{slot}', '{element}'],
      unload: [...program('mtx'), '-f', '{changer}', 'unload', '{slot}', '{element}'],
      mount: [...program('ltfs'), '-o', 'devname={device}', '-o', 'ro', '{mountPoint}'],
      unmount: [...program('umount'), '{mountPoint}'],
      startBlock: [
        ...program('getfattr'),
        ...['--absolute-names', '--only-values', '-n', 'user.ltfs.startblock', '{file}'],
      ],
    },
    seconds: { status: 60, load: 60, unload: 60, mount: 60, unmount: 60, startBlock: 60, lock: 60 },
  };
}

interface PutFile {
  volume: string;
  position: bigint | null;
  bytes: Uint8Array;
  file: string;
}

function putFile(
  state: string,
  { volume, position, bytes, file }: PutFile,
  readChanger: () => ChangerState,
  write: (changer: ChangerState) => void,
): void {
  const directory = path.join(state, 'cartridges', volume);
  const blocksFile = `${directory}.blocks`;
  if (!existsSync(directory)) {
    const changer = readChanger();
    const slot = changer.slots.find((each) => each.volume === null && !each.isPort);
    if (!slot) throw new Error('no slot is free');
    slot.volume = volume;
    write(changer);
    mkdirSync(directory);
    writeFileSync(blocksFile, '');
  }
  const place = path.join(directory, file);
  mkdirSync(path.dirname(place), { recursive: true });
  writeFileSync(place, bytes);
  if (position === null) return;
  appendFileSync(blocksFile, `${position} ${file.replace(/^\//, '')}\n`);
}

/**
 * Ends the mounts before their directories are removed, because a removal through a mount would delete files of a
 * cartridge.
 */
async function closeBench(state: string): Promise<void> {
  rmSync(path.join(state, 'behave'), { recursive: true, force: true });
  writeFileSync(path.join(state, 'mounts'), '');
  const pids = readdirSync(state)
    .filter((name) => /^ltfs-\d+\.pid$/.test(name))
    .map((name) => Number(readFileSync(path.join(state, name), 'utf8')));
  for (const pid of pids) {
    try {
      process.kill(pid, 'SIGKILL');
    } catch {
      // the process has ended
    }
  }
  rmSync(state, { recursive: true, force: true });
}
