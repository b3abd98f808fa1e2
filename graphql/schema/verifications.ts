/** Tape copies that could not be confirmed. */
import { ForbiddenError, InvalidInputError } from '../../src/core/errors.js';
import { listVerifications, verifyAgain } from '../../src/domain/catalogue/verifications.js';
import { builder, nullable, pageComplexity, time, timeOrNull } from './builder.js';
import { isBigInt, readListPage } from './pages.js';
import { ErrorClassType } from './requests.js';

const VerificationType = builder.prismaObject('Verification', {
  description: 'A tape copy that could not be confirmed when it was read back.',
  fields: (t) => ({
    file: t.relation('file', { description: 'The file whose tape copy it is.' }),
    attempts: t.exposeInt('attempts', { description: 'Tries that have failed.' }),
    errorClass: t.expose('errorClass', { type: ErrorClassType, description: 'Of the last try.' }),
    error: t.exposeString('error', { description: 'What was wrong the last time.' }),
    at: t.expose('at', time('When that was.')),
    nextTry: t.expose('notBefore', timeOrNull('Earliest time of the next try; null: it is not retried automatically.')),
  }),
});

builder.prismaObjectField('TapeFile', 'verification', (t) =>
  t.relation('verification', nullable('Why its tape copy is not confirmed; null: reading it back has not failed.')),
);

const VerifyAgain = builder.objectRef<{ files: number }>('VerifyAgain').implement({
  description: 'What `verifyAgain` has done.',
  fields: (t) => ({ files: t.exposeInt('files', { description: 'Files that are tried again.' }) }),
});

builder.queryFields((t) => ({
  verifications: t.prismaConnection({
    type: VerificationType,
    cursor: 'fileId',
    description: 'Tape copies that could not be confirmed.',
    complexity: pageComplexity,
    args: { match: t.arg.string({ description: 'A plain, case-sensitive substring of the path.' }) },
    totalCount: (_root, args, ctx) => listVerifications(ctx, args, ctx.reader).count(),
    resolve: (query, _root, args, ctx) =>
      readListPage(query, { name: 'fileId', isKey: isBigInt }, listVerifications(ctx, args, ctx.reader).page),
  }),
}));

builder.mutationFields((t) => ({
  verifyAgain: t.field({
    type: VerifyAgain,
    description: 'Has the tape copies that could not be confirmed tried again, of files whose path contains `match`.',
    errors: { types: [InvalidInputError, ForbiddenError] },
    args: {
      match: t.arg.string({
        required: true,
        description: 'A plain, case-sensitive substring; an empty one is in all.',
      }),
      staged: t.arg.boolean({
        description:
          'Also those of libraries that stage files, which are read back only when somebody asks for it: each may cost a mount, or money.',
      }),
    },
    resolve: async (_root, args, ctx) => ({ files: await verifyAgain(ctx, args) }),
  }),
}));
