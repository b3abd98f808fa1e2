/** Stands in for umount: `<state>/mnt/<n>`. It returns while the process of LTFS goes on. */
import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, readdirSync, readlinkSync, realpathSync, rmSync } from 'node:fs';
import path from 'node:path';
import { behave, fail, hasMount, removeMount } from './state.mjs';

const [place, ...more] = process.argv.slice(2);
if (!place?.startsWith('/') || more.length > 0) fail('umount: bad usage', 1);
const state = path.resolve(place, '../..');
await behave(state, 'unmount', async () => {
  if (!hasMount(state, place)) fail(`umount: ${place}: not mounted.`, 32);
  if (existsSync(path.join(state, 'bind'))) execFileSync('umount', [place], { stdio: 'inherit' });
  else {
    if (isUsed(realpathSync(place))) fail(`umount: ${place}: target is busy.`, 32);
    rmSync(place);
    mkdirSync(place);
  }
  await removeMount(state, place);
});

/** Has any process a file of the cartridge open? */
function isUsed(folder) {
  return readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .some((pid) => openFilesOf(pid).some((file) => file === folder || file.startsWith(`${folder}/`)));
}

function openFilesOf(pid) {
  try {
    return readdirSync(`/proc/${pid}/fd`).map((fd) => {
      try {
        return readlinkSync(`/proc/${pid}/fd/${fd}`);
      } catch {
        return '';
      }
    });
  } catch {
    return []; // it has ended, or is somebody else's
  }
}
