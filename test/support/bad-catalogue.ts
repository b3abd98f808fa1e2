/** Bad paths, names and reasons for what changes the catalogue: files that are withdrawn, renamed and forgotten, volumes that are moved and retired. */
import { ask, type BadInput } from './bad-input-forms.js';

const FAILED = '__typename ... on Failure { message }';
const mutationOf = (field: string, type: string) =>
  `mutation ($input: ${type}!) { result: ${field}(input: $input) { ${FAILED} } }`;

const WITHDRAW = mutationOf('withdrawFiles', 'WithdrawFilesInput');
const RENAME = mutationOf('renameFiles', 'RenameFilesInput');
const MOVE = mutationOf('moveVolume', 'MoveVolumeInput');
const RETIRE = mutationOf('retireVolume', 'RetireVolumeInput');
const REINSTATE = `mutation ($name: String!) { result: reinstateVolume(name: $name) { ${FAILED} } }`;

/** Fields of paths, and the rest of their input; pure/bad-values.test.ts has what is no path. */
const fields: readonly (readonly [field: string, type: string, name: string, rest: object])[] = [
  ['withdrawFiles', 'WithdrawFilesInput', 'path', {}],
  ['reinstateFiles', 'ReinstateFilesInput', 'path', {}],
  ['forgetFiles', 'ForgetFilesInput', 'path', {}],
  ['renameFiles', 'RenameFilesInput', 'from', { to: '/b' }],
  ['renameFiles', 'RenameFilesInput', 'to', { from: '/none' }],
];

const shown = (text: string) => JSON.stringify(text).slice(0, 24);

export const badCatalogue: readonly BadInput[] = [
  ...fields.flatMap(([field, type, name, rest]) =>
    ['/a/../b', '/'].map((path) =>
      ask(
        `${field} with ${name} ${path}`,
        new RegExp(`^${name} (has a path that|must be a file or a folder)`),
        mutationOf(field, type),
        {
          input: { ...rest, [name]: path },
        },
      ),
    ),
  ),
  ...(['withdrawFiles', 'reinstateFiles', 'forgetFiles'] as const).map((field) =>
    ask(
      `${field} of what there is not`,
      /^there is no file "\/none"$/,
      mutationOf(field, `${field[0]?.toUpperCase()}${field.slice(1)}Input`),
      {
        input: { path: '/none' },
      },
    ),
  ),
  ask('renameFiles of what there is not', /^there is no file "\/none"$/, RENAME, {
    input: { from: '/none', to: '/b' },
  }),
  ask('renameFiles without a new path', /"to" of required type/, RENAME, { input: { from: '/none' } }, 400),
  ask('renameFiles to a number', /String cannot represent/, RENAME, { input: { from: '/none', to: 5 } }, 400),
  ask('a reason with an address', /^why must not hold an address of mail/, WITHDRAW, {
    input: { path: '/none', why: 'ask a@b.example' },
  }),
  ask('a reason of two lines', /^why must not hold control characters/, WITHDRAW, {
    input: { path: '/none', why: 'a\nb' },
  }),
  ...['', 'a\nb', 'a\0b', '\ud800', 'x'.repeat(2001)].flatMap((name) => [
    ask(`moveVolume of ${shown(name)}`, /^from must /, MOVE, { input: { from: name, to: 'V2' } }),
    ask(`moveVolume to ${shown(name)}`, /^to must /, MOVE, { input: { from: 'V00001', to: name } }),
  ]),
  ask('moveVolume of none', /^there is no volume "NONE"$/, MOVE, { input: { from: 'NONE', to: 'V2' } }),
  ask('moveVolume to itself', /^to must be another volume than from, and both are "V00001"$/, MOVE, {
    input: { from: 'V00001', to: 'V00001' },
  }),
  ask('retireVolume of none', /^there is no volume "NONE"$/, RETIRE, { input: { name: 'NONE' } }),
  ask('retireVolume with a reason of two lines', /^why must not hold control characters/, RETIRE, {
    input: { name: 'NONE', why: 'a\nb' },
  }),
  ask('reinstateVolume of none', /^there is no volume "NONE"$/, REINSTATE, { name: 'NONE' }),
  ask('reinstateVolume of a lone surrogate', /^name must be valid Unicode/, REINSTATE, { name: '\ud800' }),
];
