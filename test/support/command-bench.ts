/** Tape systems made of files and scripts, for tests of the library types `command` and `command-staging`. */
import { existsSync, linkSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { packageRoot } from '../../src/core/package-root.js';
import { command, commandStaging } from '../../src/tape/command/index.js';
import { parseSettings } from '../../src/tape/kind.js';
import { LIBRARY_ENV } from './library-dir.js';
import type { StagingBench } from './staging-library.js';
import { makeTempDir } from './temp-dir.js';
import { waitFor } from './wait.js';

const SITE = { name: 'scripts', dataDir: '/nowhere', env: LIBRARY_ENV };

const scriptFile = (name: string) => path.join(packageRoot, 'test/support/command', name);

/** Creates a drive library from settings. @param limits times that may be shorter than settings allow */
export function createDrives(settings: Record<string, unknown>, limits: Record<string, number> = {}) {
  return command.create({ ...parseSettings(command.settings, settings), ...limits }, SITE);
}

/** Creates a staging library from settings. @param limits times that may be shorter than settings allow */
export function createStaging(settings: Record<string, unknown>, limits: Record<string, number> = {}) {
  return commandStaging.create({ ...parseSettings(commandStaging.settings, settings), ...limits }, SITE);
}

/** Returns the settings of a drive library whose volumes are directories in `root`. */
export function driveSettings(root: string): Record<string, unknown> {
  const script = (verb: string) => ['sh', scriptFile('drive.sh'), verb];
  return {
    mount: script('mount'),
    read: script('read'),
    unmount: script('unmount'),
    environment: [`TAPES=${root}`],
  };
}

/** Returns the settings of a staging library whose files are below `root`. */
function stagingSettings(root: string, environment: readonly string[] = []): Record<string, unknown> {
  const script = (verb: string) => ['node', scriptFile('staging.mjs'), verb];
  return {
    stage: script('stage'),
    poll: script('poll'),
    fetch: ['sh', scriptFile('fetch.sh')],
    release: script('release'),
    environment: [`TAPES=${root}`, ...environment],
  };
}

export interface CommandBench extends StagingBench {
  root: string;
  /** Settings of a library with the bench's scripts. */
  settings: Record<string, unknown>;
  /** Returns the logged calls of the scripts, except calls of fetch. A call reads `stage 1000`. */
  calls(): string[];
  /** Returns the paths of the demand files. Each file contains the paths of one stage request. */
  demands(): string[];
}

/**
 * @param changes to the settings
 * @param environment of the scripts
 */
export function createCommandBench(
  changes: Record<string, unknown> = {},
  environment: readonly string[] = [],
): CommandBench {
  const root = makeTempDir('tapes');
  for (const directory of ['tape', 'disk', 'demands']) mkdirSync(path.join(root, directory));
  const settings = { ...stagingSettings(root, environment), ...changes };
  const reopen = () => createStaging(settings);
  const demands = () =>
    readdirSync(path.join(root, 'demands'))
      .filter((name) => name.endsWith('.json')) // other files are still being written
      .map((name) => path.join(root, 'demands', name));
  const wantedIn = (file: string): string[] => JSON.parse(readFileSync(file, 'utf8'));
  return {
    root,
    settings,
    library: reopen(),
    reopen,
    calls: () => readLines(path.join(root, 'calls')),
    demands,
    put: async (file, bytes) => {
      const { [file]: how, ...spoiled } = readSpoiled(root);
      if (how) writeFileSync(path.join(root, 'spoiled.json'), JSON.stringify(spoiled));
      mkdirSync(path.dirname(`${root}/tape${file}`), { recursive: true });
      rmSync(`${root}/tape${file}`, { force: true }); // a hard link on disk may share its bytes
      writeFileSync(`${root}/tape${file}`, bytes);
    },
    arrive: async (files) => {
      const wanted = new Set(demands().flatMap(wantedIn));
      const spoiled = readSpoiled(root);
      for (const file of files) {
        if (!wanted.has(file) || spoiled[file] || existsSync(`${root}/disk${file}`)) continue;
        mkdirSync(path.dirname(`${root}/disk${file}`), { recursive: true });
        linkSync(`${root}/tape${file}`, `${root}/disk${file}`);
      }
    },
    spoil: async (file, how) => {
      writeFileSync(path.join(root, 'spoiled.json'), JSON.stringify({ ...readSpoiled(root), [file]: how }));
      rmSync(`${root}/disk${file}`, { force: true });
    },
    evict: async (file) => {
      rmSync(`${root}/disk${file}`, { force: true });
      for (const demand of demands()) {
        writeFileSync(demand, JSON.stringify(wantedIn(demand).filter((each) => each !== file)));
      }
    },
    forget: async () => {
      for (const demand of demands()) rmSync(demand);
    },
    lose: async (call) => writeFileSync(path.join(root, `lose-${call}`), ''),
    busy: async (seconds) => writeFileSync(path.join(root, 'busy'), String(seconds)),
    isStaged: async (file) => existsSync(`${root}/disk${file}`),
    countReads: async () => findScripts(`TAPES=${root}`).length,
    close: async () => {
      await waitForNoScript(`TAPES=${root}`);
      rmSync(root, { recursive: true });
    },
  };
}

function readSpoiled(root: string): Record<string, string> {
  const file = path.join(root, 'spoiled.json');
  return existsSync(file) ? JSON.parse(readFileSync(file, 'utf8')) : {};
}

export function readLines(file: string): string[] {
  return existsSync(file) ? readFileSync(file, 'utf8').trimEnd().split('\n') : [];
}

/**
 * Returns the ids of processes whose environment contains `variable`. Returns no processes on systems other than Linux.
 */
export function findScripts(variable: string): number[] {
  if (process.platform !== 'linux') return [];
  const numbers = readdirSync('/proc').filter((name) => /^\d+$/.test(name));
  return numbers.filter((pid) => readProcess(pid, 'environ').split('\0').includes(variable)).map(Number);
}

/** Reads a file in /proc. Returns '' if the process has ended or belongs to another user. */
function readProcess(pid: string, what: string): string {
  try {
    return readFileSync(`/proc/${pid}/${what}`, 'utf8');
  } catch {
    return '';
  }
}

export async function waitForNoScript(variable: string): Promise<void> {
  await waitFor('the scripts to end', async () => findScripts(variable).length === 0);
}
