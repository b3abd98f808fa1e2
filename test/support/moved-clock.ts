/** A PostgreSQL server whose clock a test sets (Linux, with a C compiler). Other programs keep this host's clock. */
import { execFileSync } from 'node:child_process';
import { closeSync, openSync, writeSync } from 'node:fs';
import path from 'node:path';
import { HERE, prepareCluster } from '../../src/database/cluster.js';
import { packageRoot } from '../../src/package-root.js';
import { makeTempDir } from './temp-dir.js';

export interface MovedDatabase {
  /** For DATABASE_URL. */
  url: string;
  /** Sets the clock ahead of this host's, or behind it. */
  shiftTo(seconds: number): void;
  close(): void;
}

/** @param dataDir of the new cluster @returns undefined without a C compiler */
export async function startMovedDatabase(
  dataDir = path.join(makeTempDir(), 'postgres'),
): Promise<MovedDatabase | undefined> {
  const { bin, user } = await prepareCluster(dataDir);
  const source = path.join(packageRoot, 'test/support/at-date/clock.c');
  try {
    execFileSync('cc', ['-O2', '-shared', '-fPIC', '-o', path.join(dataDir, 'clock.so'), source, '-ldl']);
  } catch {
    return undefined;
  }
  const shift = openSync(path.join(dataDir, 'shift'), 'w+', 0o644);
  const shiftTo = (seconds: number) => {
    const bytes = Buffer.alloc(8);
    bytes.writeBigInt64LE(BigInt(seconds));
    writeSync(shift, bytes, 0, 8, 0);
  };
  shiftTo(0);
  const preload = { LD_PRELOAD: `${HERE}/clock.so`, CLOCK_SHIFT: `${HERE}/shift` };
  const env = { PATH: '/usr/local/bin:/usr/bin:/bin', LC_ALL: 'C', TZ: 'UTC', ...preload };
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
    shiftTo,
    close: () => {
      control('stop', '-m', 'immediate');
      closeSync(shift);
    },
  };
}
