/**
 * An engine that visits one cartridge, as a process that can be killed: it mounts it, reads a file, and unmounts when its standard input ends.
 * Of the built program: `<settings as JSON> <data folder> <volume> <drive> <path>`.
 */
import { ltfs } from '../../../dist/src/tape/ltfs/index.js';

const [settings, dataDir, volume, drive, path] = process.argv.slice(2);
const library = ltfs.create(ltfs.parse(JSON.parse(settings)), { name: 'lto', dataDir, env: {} });
const mounted = await library.mount(volume, drive, new AbortController().signal);
let bytes = 0;
for await (const chunk of mounted.read({ path, position: 1n, size: 0n }, new AbortController().signal)) {
  bytes += chunk.length;
}
process.stdout.write(`read ${bytes}\n`);
process.stdin.resume().on('end', async () => {
  await mounted.unmount();
  process.stdout.write('unmounted\n');
});
