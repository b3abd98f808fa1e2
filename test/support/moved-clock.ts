/**
 * A PostgreSQL server whose clock a test can shift. Works on Linux with a C compiler. The clock of other programs does
 * not change.
 */
import { execFileSync } from 'node:child_process';
import { closeSync, openSync, writeSync } from 'node:fs';
import path from 'node:path';
import { packageRoot } from '../../src/core/package-root.js';
import { HERE, prepareCluster } from '../../src/db/embedded/cluster.js';
import { makeTempDir } from './temp-dir.js';

export interface MovedClock {
  /** Shifts the clock by this number of seconds from the host's clock, forward or backward. */
  shiftTo(seconds: number): void;
  close(): void;
}

export interface MovedDatabase extends MovedClock {
  /** Value for DATABASE_URL. */
  url: string;
}

/** Name of the preloaded library, in the directory of the cluster. */
export const CLOCK_FILE = 'clock.so';

/** Environment of a server with a shifted clock. */
export const MOVED = { LD_PRELOAD: `${HERE}/${CLOCK_FILE}`, CLOCK_SHIFT: `${HERE}/shift` };

/**
 * Prepares a cluster's directory for a server that starts with `MOVED`.
 * The file `shift` contains the seconds as a 64-bit integer, and then as text.
 * @returns undefined if there is no C compiler
 */
export function prepareClock(dataDir: string): MovedClock | undefined {
  const source = path.join(packageRoot, 'test/support/at-date/clock.c');
  try {
    execFileSync('cc', ['-O2', '-shared', '-fPIC', '-o', path.join(dataDir, CLOCK_FILE), source, '-ldl']);
  } catch {
    return undefined;
  }
  const shift = openSync(path.join(dataDir, 'shift'), 'w+', 0o644);
  const shiftTo = (seconds: number) => {
    const bytes = Buffer.alloc(32, ' ');
    bytes.writeBigInt64LE(BigInt(seconds));
    bytes.write(String(seconds), 8);
    writeSync(shift, bytes, 0, bytes.length, 0);
  };
  shiftTo(0);
  return { shiftTo, close: () => closeSync(shift) };
}

/**
 * @param dataDir directory of the new cluster
 * @returns undefined if there is no C compiler
 */
export async function startMovedDatabase(
  dataDir = path.join(makeTempDir(), 'postgres'),
): Promise<MovedDatabase | undefined> {
  const { bin, user } = await prepareCluster(dataDir);
  const clock = prepareClock(dataDir);
  if (!clock) return undefined;
  const env = { PATH: '/usr/local/bin:/usr/bin:/bin', LC_ALL: 'C', TZ: 'UTC', ...MOVED };
  const control = (...args: string[]) =>
    execFileSync(path.join(bin, 'pg_ctl'), ['-D', HERE, '-w', ...args], {
      ...user,
      env,
      cwd: dataDir,
      stdio: 'ignore',
    });
  const settings = ['listen_addresses=', `unix_socket_directories=${HERE}`, 'fsync=off', 'timezone=UTC'];
  control('start', '-l', 'server.log', '-o', settings.map((each) => `-c ${each}`).join(' '));
  return {
    url: `postgresql://postgres@localhost:5432/tapegate?host=${encodeURIComponent(dataDir)}`,
    shiftTo: clock.shiftTo,
    close: () => {
      control('stop', '-m', 'immediate');
      clock.close();
    },
  };
}
