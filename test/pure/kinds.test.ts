/** The registry of library types, and how Tapegate reads library settings. */
import { expect, test } from 'vitest';
import { SettingsError } from '../../src/core/errors.js';
import { choice, flag, integer, parseSettings, settingsOf, text, texts } from '../../src/tape/kind.js';
import { checkLibrary, createDriveLibrary, createStagingLibrary, kinds } from '../../src/tape/kinds.js';

const refusal = (run: () => unknown) => {
  try {
    return run();
  } catch (error) {
    if (!(error instanceof SettingsError)) throw error;
    return [error.setting, error.message];
  }
};

test.each(['lto', 'constructor'])('the unknown library type %s is refused with the list of types', (kind) => {
  const says = `kind must be one of ${Object.keys(kinds).join(', ')}, not "${kind}"`;
  expect(refusal(() => checkLibrary(kind, {}))).toEqual(['kind', says]);
});

test.each([
  [{}, 'directory', 'directory must be given: an absolute path'],
  [{ directory: 'tapes' }, 'directory', 'directory must be an absolute path, not "tapes"'],
  [['/a'], 'settings', 'settings must be an object, not [\\"/a\\"]'],
  [
    { directory: '/a', token: 'hush' },
    'token',
    'token is not a setting of this library type; its settings are directory',
  ],
])('settings %j of a directory library are refused', (settings, setting, message) => {
  expect(refusal(() => checkLibrary('directory', settings))).toEqual([setting, message]);
});

test('settings are read as texts or as values of JSON, and all faults are reported at once', () => {
  const schema = settingsOf({
    text: text(),
    number: integer(0, 12).default(7),
    flag: flag().default(true),
    list: texts().default([]),
    choice: choice(['x', 'y']).default('x'),
  });
  const least = { text: 'a b', number: 7, flag: true, list: [], choice: 'x' };
  expect(parseSettings(schema, { text: 'a b', number: '', list: null })).toEqual(least);
  const full = { text: '8', number: 12, flag: false, list: ['a', '1'], choice: 'y' };
  expect(parseSettings(schema, { ...full, text: 8, number: '12', flag: 'false', list: ['a', 1] })).toEqual(full);
  const wrong = { text: 'a\nb', number: 13, flag: 'yes', list: 'a', choice: 'z', other: 1 };
  expect(refusal(() => parseSettings(schema, wrong))).toEqual([
    'text',
    'text must be a single-line string, not "a\\nb"; number must be a whole number from 0 to 12, not 13; ' +
      'flag must be true or false, not "yes"; list must be a list of strings, not "a"; choice must be one of x, y, not "z"; ' +
      'other is not a setting of this library type; its settings are text, number, flag, list, choice',
  ]);
});

test('a library that is away can be created, and fails when it is used', async () => {
  const where = { dataDir: '/data', env: {} };
  const library = { name: 'east', kind: 'directory', settings: { directory: '/nowhere/tapes' } };
  const says = 'kind must be a library type that stages files, not "directory"';
  expect(refusal(() => createStagingLibrary(library, where))).toEqual(['kind', says]);
  await expect(createDriveLibrary(library, where).mount('V1', 'east-1', new AbortController().signal)).rejects.toThrow(
    'the library /nowhere/tapes, which should contain the volume V1, does not exist',
  );
});
