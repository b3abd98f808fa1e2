/**
 * What the stand-ins for mtx, ltfs, umount and getfattr share: a changer whose state is a folder.
 *
 *   changer.json       what is in which slot and drive
 *   changer  sg0 …     the devices, by their names
 *   cartridges/V1/     the files of a cartridge; V1.json: the start block of each by its path
 *   mnt/0 …            mount points
 *   mounts             what is mounted, in the form of /proc/self/mountinfo
 *   behave/load …      what goes wrong with a step: JSON with slowMs, fail (text), hold ('before' or 'after' it is done)
 *   reached/load …     a step that is held has come there; it goes on when its behave file has gone
 *   log                a line for each step that begins and ends
 */
import {
  appendFileSync,
  existsSync,
  mkdirSync,
  readFileSync,
  renameSync,
  rmdirSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';

export const readChanger = (state) => JSON.parse(readFileSync(path.join(state, 'changer.json'), 'utf8'));

export function writeChanger(state, changer) {
  const file = path.join(state, 'changer.json');
  writeFileSync(`${file}.${process.pid}`, JSON.stringify(changer));
  renameSync(`${file}.${process.pid}`, file);
}

export function fail(text, code = 1) {
  process.stderr.write(`${text}\n`);
  process.exit(code);
}

export const log = (state, line) => appendFileSync(path.join(state, 'log'), `${line}\n`);

/** Does a step as it is to behave. */
export async function behave(state, step, work) {
  const file = path.join(state, 'behave', step);
  const { slowMs = 0, fail: text, hold } = existsSync(file) ? JSON.parse(readFileSync(file, 'utf8')) : {};
  const wait = async () => {
    mkdirSync(path.join(state, 'reached'), { recursive: true });
    writeFileSync(path.join(state, 'reached', step), String(process.pid));
    while (existsSync(file)) await sleep(5);
    rmSync(path.join(state, 'reached', step), { force: true });
  };
  log(state, `begin ${step}`);
  if (hold === 'before') await wait();
  await sleep(slowMs);
  if (text !== undefined) {
    log(state, `end ${step}`);
    fail(text);
  }
  const result = await work();
  if (hold === 'after') await wait();
  log(state, `end ${step}`);
  return result;
}

export function isAlive(pid) {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}

/** The process of LTFS that has the drive, if one does. */
export function holderOf(state, drive) {
  const file = path.join(state, `ltfs-${drive}.pid`);
  const pid = existsSync(file) ? Number(readFileSync(file, 'utf8')) : 0;
  return pid > 0 && isAlive(pid) ? pid : undefined;
}

const escapeField = (text) => text.replace(/[\\ \t\n]/g, (c) => `\\${c.charCodeAt(0).toString(8).padStart(3, '0')}`);
const table = (state) => path.join(state, 'mounts');

export function listMounts(state) {
  return existsSync(table(state)) ? readFileSync(table(state), 'utf8').split('\n').filter(Boolean) : [];
}

export const hasMount = (state, place) => listMounts(state).some((line) => line.split(' ')[4] === escapeField(place));

export async function addMount(state, place, device) {
  const id = 100 + Math.floor(Math.random() * 1e6);
  const line = `${id} 29 0:52 / ${escapeField(place)} ro,nosuid,nodev,relatime shared:1 - fuse ltfs:${escapeField(device)} ro`;
  await changeTable(state, (lines) => [...lines, line]);
}

export async function removeMount(state, place) {
  await changeTable(state, (lines) => lines.filter((line) => line.split(' ')[4] !== escapeField(place)));
}

/** One at a time, as the system does it. */
async function changeTable(state, change) {
  const lock = `${table(state)}.lock`;
  for (;;) {
    try {
      mkdirSync(lock);
      break;
    } catch {
      await sleep(1);
    }
  }
  const lines = change(listMounts(state));
  writeFileSync(`${table(state)}.new`, lines.map((line) => `${line}\n`).join(''));
  renameSync(`${table(state)}.new`, table(state));
  rmdirSync(lock);
}
