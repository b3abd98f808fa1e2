/** Defines the GraphQL types for tape copies that failed verification. */
import { ForbiddenError, InvalidInputError } from '../../src/core/errors.js';
import { listVerifications, verifyFiles } from '../../src/domain/catalogue/verifications.js';
import { builder, connectionOf, nullable, pageComplexity, time, timeOrNull } from './builder.js';
import { isBigInt, readListPage } from './pages.js';
import { defineMutation, resultOf } from './payloads.js';
import { ErrorClassType } from './requests.js';

const VerificationType = builder.prismaNode('Verification', {
  name: 'VerificationFailure',
  id: { field: 'fileId' },
  nullable: true,
  description: 'A tape copy whose verification failed. To verify a copy, Tapegate reads the copy back from tape.',
  fields: (t) => ({
    file: t.relation('file', { description: 'The file.' }),
    attempts: t.exposeInt('attempts', { description: 'The number of failed attempts.' }),
    errorClass: t.expose('errorClass', { type: ErrorClassType, description: 'The class of the last error.' }),
    error: t.exposeString('error', { description: 'The last error.' }),
    at: t.expose('at', time('When the last attempt failed.')),
    nextTryAt: t.expose(
      'notBefore',
      timeOrNull(
        'The earliest time of the next attempt. Null if Tapegate does not retry the verification automatically.',
      ),
    ),
  }),
});

builder.prismaObjectField('TapeFile', 'verificationFailure', (t) =>
  t.relation(
    'verification',
    nullable("The failed verification of the file's tape copy. Null if no verification failed."),
  ),
);

const QueuedVerificationsType = builder.objectRef<{ files: number }>('QueuedVerifications').implement({
  description: 'Verifications that will be repeated.',
  fields: (t) => ({
    fileCount: t.exposeInt('files', { description: 'The number of files whose tape copies will be verified again.' }),
  }),
});

builder.queryFields((t) => ({
  verificationFailures: t.prismaConnection(
    {
      type: VerificationType,
      nullable: true,
      cursor: 'fileId',
      description: 'Returns the tape copies whose verification failed.',
      complexity: pageComplexity,
      args: {
        match: t.arg.string({ description: 'A plain, case-sensitive substring of the path.' }),
        volume: t.arg.string({ description: 'Returns only files whose first copy is on the volume with this name.' }),
      },
      totalCount: (_root, args, ctx) => listVerifications(ctx, args, ctx.reader).count(),
      resolve: (query, _root, args, ctx) =>
        readListPage(query, { name: 'fileId', isKey: isBigInt }, listVerifications(ctx, args, ctx.reader).page),
    },
    ...connectionOf('VerificationFailure'),
  ),
}));

const VerifyFilesInput = builder.inputType('VerifyFilesInput', {
  description: 'Input of `verifyFiles`.',
  fields: (t) => ({
    match: t.string({
      required: true,
      description: 'A plain, case-sensitive substring of the path. An empty string matches all files.',
    }),
    staged: t.boolean({
      description:
        'Whether to also verify never-verified files in staging libraries. Tapegate does not verify these files automatically. Reading such a file may require a mount or cost money.',
    }),
  }),
});

defineMutation('verifyFiles', {
  description: 'Retries failed verifications of the files whose path contains `match`.',
  errors: [InvalidInputError, ForbiddenError],
  resolve: async (args, ctx) => ({ files: await verifyFiles(ctx, args) }),
  input: VerifyFilesInput,
  result: (t) => ({
    queued: t.field({
      type: QueuedVerificationsType,
      nullable: true,
      description: 'The verifications that will be repeated.',
      resolve: resultOf,
    }),
  }),
});
