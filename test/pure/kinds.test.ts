import { expect, test } from 'vitest';
import { SettingsError } from '../../src/errors.js';
import { readSettings } from '../../src/tape/kind.js';
import { checkLibrary, createDriveLibrary, createStagingLibrary, kinds } from '../../src/tape/kinds.js';

const refusal = (run: () => unknown) => {
  try {
    return run();
  } catch (error) {
    if (!(error instanceof SettingsError)) throw error;
    return [error.setting, error.message];
  }
};

test('a kind that there is not is refused, and those that there are are named', () => {
  const names = Object.keys(kinds).join(', ');
  expect(refusal(() => checkLibrary('lto', {}))).toEqual(['kind', `kind must be one of ${names}, not "lto"`]);
  expect(refusal(() => checkLibrary('constructor', {}))).toEqual([
    'kind',
    `kind must be one of ${names}, not "constructor"`,
  ]);
});

test.each([
  [{}, 'folder', 'folder must be given: an absolute path'],
  [{ folder: 'tapes' }, 'folder', 'folder must be an absolute path, not "tapes"'],
  [{ folder: ['/a'] }, 'folder', 'folder must be an absolute path, not [\\"/a\\"]'],
  [{ folder: '/a', depth: 3 }, 'depth', 'depth is no setting of this kind; the settings are folder'],
  [['/a'], 'settings', 'settings must be an object, not [\\"/a\\"]'],
])('settings %j of a directory library are refused', (settings, setting, message) => {
  expect(refusal(() => checkLibrary('directory', settings))).toEqual([setting, message]);
});

test('a secret among the settings is refused and not told, and those are taken that say where it is', () => {
  const advice = (name: string) =>
    `${name} must not be in the settings, which anybody may read who reads the database: give ${name}File, the path of a file that has it, or ${name}Env, the name of a variable`;
  for (const name of ['token', 'secretAccessKey', 'password', 'API_KEY', 'clientSecret']) {
    expect(refusal(() => checkLibrary('directory', { folder: '/a', [name]: 'hush' }))).toEqual([name, advice(name)]);
    expect(refusal(() => checkLibrary('directory', { folder: '/a', more: [{ [name]: 'hush' }] }))).toEqual([
      name,
      advice(name),
    ]);
  }
  expect(refusal(() => checkLibrary('directory', { endpoint: 'https://ann:hush@tapes.example/' }))).toEqual([
    'endpoint',
    'endpoint must not hold a password: it would stand in the database',
  ]);
  for (const name of ['tokenFile', 'tokenEnv']) {
    expect(refusal(() => checkLibrary('directory', { folder: '/a', [name]: '/b' }))).toEqual([
      name,
      `${name} is no setting of this kind; the settings are folder`,
    ]);
  }
});

test('settings are read as texts and as what they are in JSON', () => {
  const names = ['text', 'number', 'flag', 'list', 'choice', 'none', 'empty'];
  for (const [number, flag] of [
    [12, true],
    ['12', 'true'],
  ]) {
    const read = readSettings({ text: 'a b', number, flag, list: ['a', 'b'], choice: 'y', empty: '' }, names);
    expect([
      read.text('text'),
      read.text('none', undefined),
      read.integer('number', { least: 0, most: 12 }),
      read.integer('empty', { least: 0, most: 12, fallback: 7 }),
      read.flag('flag', false),
      read.flag('none', true),
      read.list('list'),
      read.list('none', []),
      read.oneOf('choice', ['x', 'y']),
      read.oneOf('none', ['x', 'y'], 'x'),
    ]).toEqual(['a b', undefined, 12, 7, true, true, ['a', 'b'], [], 'y', 'x']);
  }
  const read = readSettings({ text: 'a\nb', number: 13, flag: 'yes', list: 'a', choice: 'z' }, names);
  expect([
    refusal(() => read.text('text')),
    refusal(() => read.integer('number', { least: 0, most: 12 })),
    refusal(() => read.flag('flag', false)),
    refusal(() => read.list('list')),
    refusal(() => read.oneOf('choice', ['x', 'y'])),
  ]).toEqual([
    ['text', 'text must be a text of one line, not "a\\nb"'],
    ['number', 'number must be a whole number from 0 to 12, not 13'],
    ['flag', 'flag must be true or false, not "yes"'],
    ['list', 'list must be a list of texts, not "a"'],
    ['choice', 'choice must be one of x, y, not "z"'],
  ]);
});

test('a library that is away is made all the same, and found out when it is used', async () => {
  const where = { dataDir: '/data', env: {} };
  const library = { name: 'east', kind: 'directory', settings: { folder: '/nowhere/tapes' } };
  expect(refusal(() => createStagingLibrary(library, where))).toEqual([
    'kind',
    'kind must be one of libraries that stage files, not "directory"',
  ]);
  await expect(createDriveLibrary(library, where).mount('V1', 'east-1', new AbortController().signal)).rejects.toThrow(
    'the library /nowhere/tapes, which should have the volume V1, is not there',
  );
});
