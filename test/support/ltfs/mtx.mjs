/** Stands in for mtx: `-f <state>/changer status | load <slot> <drive> | unload <slot> <drive>`, one at a time. */
import { closeSync, openSync, readFileSync, rmSync, writeSync } from 'node:fs';
import path from 'node:path';
import { behave, fail, holderOf, isAlive, readChanger, writeChanger } from './state.mjs';

const [flag, device, command, ...numbers] = process.argv.slice(2);
const usage = 'Usage: mtx [ -f <loader-dev> ] status | load <slot> <drive> | unload <slot> <drive>';
if (flag !== '-f' || path.basename(device) !== 'changer') fail(usage);
if (!['status', 'load', 'unload'].includes(command)) fail(usage);
if (numbers.length !== (command === 'status' ? 0 : 2) || !numbers.every((text) => /^\d+$/.test(text))) fail(usage);
const state = path.dirname(device);
const [slot, drive] = numbers.map(Number);

takeChanger();
await behave(state, command, { status, load, unload }[command]);

/** A real changer refuses, or mixes up, what comes while it moves. */
function takeChanger() {
  const file = path.join(state, 'changer.pid');
  try {
    const fd = openSync(file, 'wx');
    writeSync(fd, String(process.pid));
    closeSync(fd);
  } catch {
    const pid = Number(readFileSync(file, 'utf8'));
    if (pid > 0 && isAlive(pid)) fail(`mtx: Device or resource busy: ${device} is used by ${pid}`);
  }
  process.on('exit', () => rmSync(file, { force: true }));
}

function status() {
  const { slots, drives } = readChanger(state);
  const ports = slots.filter(({ isPort }) => isPort).length;
  const lines = [
    `  Storage Changer ${device}:${drives.length} Drives, ${slots.length} Slots ( ${ports} Import/Export )`,
  ];
  for (const [number, { volume, source }] of drives.entries()) {
    const from = source ? `Storage Element ${source} Loaded` : 'Unknown Storage Element Loaded';
    const tag = volume && volume !== '?' ? `:VolumeTag = ${volume}` : '';
    lines.push(`Data Transfer Element ${number}:${volume ? `Full (${from})${tag}` : 'Empty'}`);
  }
  for (const [index, { volume, isPort }] of slots.entries()) {
    const tag = volume && volume !== '?' ? `:VolumeTag=${volume}` : '';
    lines.push(
      `      Storage Element ${index + 1}${isPort ? ' IMPORT/EXPORT' : ''}:${volume ? `Full ${tag}` : 'Empty'}`,
    );
  }
  process.stdout.write(`${lines.join('\n')}\n`);
}

function load() {
  const changer = readChanger(state);
  const [from, to] = [changer.slots[slot - 1], changer.drives[drive]];
  if (!from) fail(`Invalid <storage-element-number> argument '${slot}' to 'load' command`);
  if (!to) fail(`illegal <drive-number> argument '${drive}' to 'load' command`);
  if (to.volume) fail(`Drive ${drive} Full (Storage Element ${to.source ?? 0} loaded)`);
  process.stdout.write(`Loading media from Storage Element ${slot} into drive ${drive}...`);
  if (!from.volume) fail(`Source Element Address ${1000 + slot} is Empty`);
  Object.assign(to, { volume: from.volume, source: slot });
  from.volume = null;
  writeChanger(state, changer);
  process.stdout.write('done\n');
}

function unload() {
  const changer = readChanger(state);
  const [to, from] = [changer.slots[slot - 1], changer.drives[drive]];
  if (!to) fail(`illegal <storage-element-number> argument '${slot}' to 'unload' command`);
  if (!from) fail(`illegal <drive-number> argument '${drive}' to 'unload' command`);
  if (!from.volume) fail(`Data Transfer Element ${drive} is Empty`);
  if (to.volume) fail(`Storage Element ${slot} is Already Full`);
  process.stdout.write(`Unloading drive ${drive} into Storage Element ${slot}...`);
  if (holderOf(state, drive)) {
    const sense = ['Sense Key = Illegal Request', 'Additional Sense Code = 53', 'Additional Sense Qualifier = 02'];
    for (const line of sense) process.stderr.write(`mtx: Request Sense: ${line}\n`);
    fail(`MOVE MEDIUM from Element Address ${256 + drive} to ${1000 + slot} Failed`);
  }
  to.volume = from.volume;
  Object.assign(from, { volume: null, source: null });
  writeChanger(state, changer);
  process.stdout.write('done\n');
}
