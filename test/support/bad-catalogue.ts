/** Bad paths, names and reasons for mutations of files and volumes. */
import { type BadInput, mutate, mutateEach, shorten } from './bad-input-forms.js';

/**
 * Mutations with a path, each with the path's field and the other fields of the input.
 * `pure/bad-values.test.ts` tests all bad paths.
 */
const paths = [
  ['withdrawFiles', 'path', {}],
  ['reinstateFiles', 'path', {}],
  ['purgeFiles', 'path', {}],
  ['renameFiles', 'from', { to: '/b' }],
  ['renameFiles', 'to', { from: '/none' }],
] as const;

const NO_FILE = /^there is no file "\/none"$/;
const NO_VOLUME = /^there is no volume "NONE"$/;
const CONTROL = /^reason must not contain control characters/;

export const badCatalogue: readonly BadInput[] = [
  ...paths.flatMap(([field, name, rest]) => {
    const says = new RegExp(`^${name} (has a path that|must be a file or a directory)`);
    return ['/a/../b', '/'].map((path) => mutate(field, `with ${name} ${path}`, says, { ...rest, [name]: path }));
  }),
  ...['withdrawFiles', 'reinstateFiles', 'purgeFiles'].map((field) =>
    mutate(field, 'of an unknown file', NO_FILE, { path: '/none' }),
  ),
  mutate('renameFiles', 'of an unknown file', NO_FILE, { from: '/none', to: '/b' }),
  mutate('renameFiles', 'without a new path', /"to" of required type/, { from: '/none' }),
  mutate('renameFiles', 'to a number', /String cannot represent/, { from: '/none', to: 5 }),
  mutate('withdrawFiles', 'with an email address as reason', /^reason must not contain an email address/, {
    ...{ path: '/none', reason: 'ask a@b.example' },
  }),
  mutate('withdrawFiles', 'with a reason of two lines', CONTROL, { path: '/none', reason: 'a\nb' }),
  ...['', 'a\nb', 'a\0b', '\ud800', 'x'.repeat(2001)].map((name) =>
    mutate('moveVolume', `to ${shorten(name)}`, /^to must /, { from: 'V00001', to: name }),
  ),
  mutate('moveVolume', 'from a name of two lines', /^from must /, { from: 'a\nb', to: 'V2' }),
  mutate('moveVolume', 'of an unknown volume', NO_VOLUME, { from: 'NONE', to: 'V2' }),
  mutate('moveVolume', 'to itself', /^to must differ from the source volume: both are "V00001"$/, {
    ...{ from: 'V00001', to: 'V00001' },
  }),
  mutate('retireVolume', 'of an unknown volume', NO_VOLUME, { name: 'NONE' }),
  mutate('retireVolume', 'with a reason of two lines', CONTROL, { name: 'NONE', reason: 'a\nb' }),
  ...mutateEach('reinstateVolume', 'name', NO_VOLUME, ['NONE']),
  ...mutateEach('reinstateVolume', 'name', /^name must be valid Unicode/, ['\ud800']),
];
