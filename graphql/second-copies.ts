/** Files that are on tape twice. */
import { builder } from './builder.js';
import { findVolume, VolumeType } from './tapes.js';

builder.prismaObjectField('TapeFile', 'copyVolume', (t) =>
  t.field({
    type: VolumeType,
    nullable: true,
    description: 'The volume that has the same bytes once more; null: none is known.',
    resolve: ({ copyVolumeId }, _args, ctx) => findVolume(ctx, copyVolumeId),
  }),
);

builder.prismaObjectField('TapeFile', 'copyPosition', (t) =>
  t.expose('copyPosition', {
    type: 'BigInt',
    nullable: true,
    description: 'Their place on `copyVolume`; null: not known.',
  }),
);

builder.prismaObjectField('TapeFile', 'copyError', (t) =>
  t.exposeString('copyError', {
    nullable: true,
    description: 'Why they could not be read there, if that was tried: the file is read at its other place since then.',
  }),
);
