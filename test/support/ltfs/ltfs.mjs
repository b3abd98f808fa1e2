/**
 * Stands in for ltfs: `-o devname=<state>/sg<drive> -o ro <mount point>`. It returns when the cartridge is mounted, and goes on in the background
 * until it was unmounted, and for a while longer, with all that it has inherited open, as a process of FUSE does. A mount is a link in the place of
 * the mount point, which needs no rights, or where the state has a file `bind` a real one.
 */
import { execFileSync, spawn } from 'node:child_process';
import { existsSync, fstatSync, readdirSync, rmdirSync, rmSync, statSync, symlinkSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { addMount, behave, fail, hasMount, holderOf, log, readChanger } from './state.mjs';

if (process.argv[2] === '--background') await stayMounted(...process.argv.slice(3));
else await mount(readArguments(process.argv.slice(2)));

function readArguments(args) {
  const [options, rest] = [[], []];
  while (args.length > 0) {
    const arg = args.shift();
    if (arg === '-o') options.push(args.shift());
    else rest.push(arg);
  }
  const device = options.find((option) => option.startsWith('devname='))?.slice('devname='.length);
  if (!device || rest.length !== 1) fail('LTFS14091E Need to specify a device with -o devname and a mount point.');
  if (!options.includes('ro')) fail('LTFS00000E The stand-in mounts nothing that could be written.');
  return { device, place: path.resolve(rest[0]) };
}

async function mount({ device, place }) {
  const state = path.dirname(device);
  const drive = Number(/^sg(\d+)$/.exec(path.basename(device))?.[1] ?? Number.NaN);
  process.stderr.write(`ltfs LTFS14000I LTFS starting, LTFS version 2.4.5.0, log level 2.\n`);
  await behave(state, 'mount', async () => {
    const volume = readChanger(state).drives[drive]?.volume;
    if (volume === undefined) fail(`LTFS30209E Cannot open device ${device}: No such file or directory.`);
    if (holderOf(state, drive)) fail(`LTFS12113E Cannot open device: ${device} is reserved (Device or resource busy).`);
    if (volume === null) fail('LTFS11298E Cannot load the medium: no medium present.');
    const folder = path.join(state, 'cartridges', volume);
    if (!existsSync(`${folder}.json`)) {
      fail(
        'LTFS11170E Failed to read label (-1012) from partition 1.\nLTFS11009E Cannot read volume: failed to read partition labels.\nLTFS14013E Cannot mount the volume.',
      );
    }
    if (!statSync(place, { throwIfNoEntry: false })?.isDirectory())
      fail(`fuse: bad mount point \`${place}': No such file or directory`);
    if (hasMount(state, place) || readdirSync(place).length > 0) fail('fuse: mountpoint is not empty');
    await goOn({ state, drive, place, folder, device });
  });
}

async function goOn({ state, drive, place, folder, device }) {
  if (existsSync(path.join(state, 'bind'))) {
    execFileSync('mount', ['--bind', folder, place]);
    execFileSync('mount', ['-o', 'remount,bind,ro', place]);
  } else {
    rmdirSync(place);
    symlinkSync(folder, place);
  }
  await addMount(state, place, device);
  const inherited = hasDescriptor(3) ? [3] : [];
  const child = spawn(process.execPath, [process.argv[1], '--background', state, String(drive), place], {
    detached: true,
    stdio: ['ignore', 'ignore', 'ignore', ...inherited],
  });
  writeFileSync(path.join(state, `ltfs-${drive}.pid`), String(child.pid));
  child.unref();
}

function hasDescriptor(fd) {
  try {
    return fstatSync(fd).isFile();
  } catch {
    return false;
  }
}

async function stayMounted(state, drive, place) {
  while (hasMount(state, place)) await sleep(5);
  await behave(state, 'end', () => rmSync(path.join(state, `ltfs-${drive}.pid`), { force: true }));
  log(state, `LTFS of drive ${drive} has ended`);
}
