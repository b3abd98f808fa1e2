/**
 * Program that mounts a cartridge, reads a file, and unmounts the cartridge when its standard input ends.
 * Tests kill the program to simulate a killed engine.
 * Arguments: settings as JSON, data directory, volume, drive, path.
 */
import { parseSettings } from '../../../src/tape/kind.js';
import { ltfs } from '../../../src/tape/ltfs/index.js';

const [settings = '', dataDir = '', volume = '', drive = '', path = ''] = process.argv.slice(2);
const { signal } = new AbortController();

async function main(): Promise<void> {
  const library = ltfs.create(parseSettings(ltfs.settings, JSON.parse(settings)), {
    name: 'lto',
    dataDir,
    env: process.env,
  });
  const mounted = await library.mount(volume, drive, signal);
  let bytes = 0;
  for await (const chunk of mounted.read({ path, position: 1n, size: 0n }, signal)) bytes += chunk.length;
  process.stdout.write(`read ${bytes}\n`);
  process.stdin.resume().on('end', async () => {
    await mounted.unmount();
    process.stdout.write('unmounted\n');
  });
}

void main();
