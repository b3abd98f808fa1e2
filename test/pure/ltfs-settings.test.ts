/** Settings of the library type `ltfs`, and how it reads the changer's status and the mount table. */
import { expect, test } from 'vitest';
import { parseSettings } from '../../src/tape/kind.js';
import { chooseSlot, findDrive, isCleaning, parseElements } from '../../src/tape/ltfs/changer.js';
import { readMounts } from '../../src/tape/ltfs/drive.js';
import { fill, ltfsSettings } from '../../src/tape/ltfs/settings.js';

const drive = { device: '/dev/sg3', element: 0, mountPoint: '/mnt/ltfs/0' };
const least = { changer: '/dev/sch0', drives: { 'lto-1': drive } };

test('missing settings have their defaults', () => {
  const settings = parseSettings(ltfsSettings, least);
  expect(settings).toMatchObject({ root: '/', prefix: '/', mountTable: '/proc/self/mountinfo' });
  expect(settings.drives.get('lto-1')).toEqual({ name: 'lto-1', ...drive });
  const { load, mount } = settings.commands;
  expect(fill(load, { changer: '/dev/sch0', slot: 3, element: 0 }).join(' ')).toBe('mtx -f /dev/sch0 load 3 0');
  expect(fill(mount, { ...drive }).join(' ')).toBe('ltfs -o devname=/dev/sg3 -o ro /mnt/ltfs/0');
});

test('a placeholder is replaced by one argument, whatever its value contains', () => {
  const filled = fill(['a', 'x={device}', '{file}'], { device: '{file} "', file: '/a b/$(c) {device}' });
  expect(filled).toEqual(['a', 'x={file} "', '/a b/$(c) {device}']);
});

const FIELDS = 'an object that maps the name of each drive to device, element and mountPoint';

test.each<[settings: object, message: string | RegExp]>([
  [{ changer: undefined }, 'changer must be given: a device name without spaces or commas'],
  [{ changer: '' }, 'changer must be given: a device name without spaces or commas'],
  [{ drives: undefined }, `drives must be given: ${FIELDS}`],
  [{ drives: [drive] }, /^drives must be an object .*, not \[/],
  [{ drives: {} }, /^drives must be an object .*, not \{\}/],
  [{ drives: { a: { ...drive, element: -1 } } }, 'drives.a.element must be a whole number from 0 to 9999, not -1'],
  [{ drives: { a: 'x' } }, 'drives.a must be an object, not "x"'],
  [{ drives: { a: { ...drive, mountPoint: 'x' } } }, 'drives.a.mountPoint must be an absolute path, not "x"'],
  [
    { drives: { a: drive, b: { ...drive, device: '/dev/sg4' } } },
    'drives.b.element must not be "0", which the drive a already uses',
  ],
  [{ root: 'data' }, 'root must be an absolute path, not "data"'],
  [{ commands: { eject: ['mt'] } }, 'commands.eject is not a setting of this library type'],
  [{ commands: { load: 'mtx load' } }, 'commands.load must be a list of strings, not "mtx load"'],
  [
    { commands: { load: ['mtx', '{drive}'] } },
    'commands.load must not contain the placeholder {drive}; valid placeholders: {changer}, ',
  ],
  [
    { commands: { load: ['mtx', 'tag={volume}'] } },
    'commands.load must have {volume} as a separate argument, not in "tag={volume}"',
  ],
  [
    { commands: { load: ['{device}'] } },
    'commands.load must begin with the file name of a program in TAPEGATE_LIBRARY_DIR/programs, not "{device}"',
  ],
  [{ commands: { load: ['/bin/sh', '-c', 'id'] } }, 'commands.load must begin with the file name of a program'],
  [{ changer: 'a b' }, 'changer must be a device name without spaces or commas, not "a b"'],
  [{ seconds: { mount: 0 } }, 'seconds.mount must be a whole number from 1 to 86400, not 0'],
])('settings %j are refused', (settings, message) => {
  expect(() => parseSettings(ltfsSettings, { ...least, ...settings })).toThrow(message);
});

const STATUS = `  Storage Changer /dev/sch0:3 Drives, 6 Slots ( 1 Import/Export )
Data Transfer Element 0:Full (Storage Element 3 Loaded):VolumeTag = A00003L8                        
Data Transfer Element 1:Full (Unknown Storage Element Loaded):VolumeTag = CLN001L1:AlternateVolumeTag = X
Data Transfer Element 2:Empty
      Storage Element 1:Full :VolumeTag=A00001L8                        
      Storage Element 2:Full 
      Storage Element 3:Empty
      Storage Element 4:Empty:VolumeTag=
      Storage Element 5:Full :VolumeTag=A00005L8:AlternateVolumeTag=B
      Storage Element 6 IMPORT/EXPORT:Empty
`;

test('the output of mtx is parsed: drives, slots, import/export slots, barcodes and sources', () => {
  const elements = parseElements(STATUS);
  const none = { volume: undefined, source: undefined };
  expect(elements).toEqual([
    { kind: 'drive', number: 0, isFull: true, volume: 'A00003L8', source: 3 },
    { kind: 'drive', number: 1, isFull: true, volume: 'CLN001L1', source: undefined },
    { kind: 'drive', number: 2, isFull: false, ...none },
    { kind: 'slot', number: 1, isFull: true, ...none, volume: 'A00001L8' },
    { kind: 'slot', number: 2, isFull: true, ...none },
    { kind: 'slot', number: 3, isFull: false, ...none },
    { kind: 'slot', number: 4, isFull: false, ...none },
    { kind: 'slot', number: 5, isFull: true, ...none, volume: 'A00005L8' },
    { kind: 'port', number: 6, isFull: false, ...none },
  ]);
  expect(elements.filter(isCleaning).map(({ number }) => number)).toEqual([1]);
  expect([0, 1].map((number) => chooseSlot(elements, findDrive(elements, number)).number)).toEqual([3, 3]);
});

test.each([
  ['', 'the changer reports no drive: no output'],
  ['mtx: no such device', 'the changer reports no drive: mtx: no such device'],
  [
    STATUS.replace('2:Empty', '2:Broken'),
    "cannot parse the changer's report of an element: Data Transfer Element 2:Broken",
  ],
])('an output of mtx without a list of elements is refused', (status, message) => {
  expect(() => parseElements(status)).toThrow(message);
});

test('mount points are read with their octal escapes', () => {
  const line = (place: string) => `36 35 98:0 / ${place} rw,noatime master:1 - fuse ltfs:/dev/sg3 ro`;
  const table = ['/mnt/a\\040b', '/mnt/\\134', '/mnt/ü'].map(line).join('\n');
  expect(readMounts(`${table}\n`).map(({ target, type }) => `${target} ${type}`)).toEqual([
    '/mnt/a b fuse',
    '/mnt/\\ fuse',
    '/mnt/ü fuse',
  ]);
});
