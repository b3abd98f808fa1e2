/** Files of a request that are let go before its end. */
import { ForbiddenError, InvalidInputError, NotFoundError } from '../src/errors.js';
import { releaseFiles } from '../src/operations/requests/ends.js';
import { getRequest } from '../src/operations/requests/rows.js';
import { builder } from './builder.js';
import { readBack } from './errors.js';
import { RequestType } from './requests.js';

const ReleaseFilesInput = builder.inputType('ReleaseFilesInput', {
  description: 'Exactly one of paths and match is given.',
  fields: (t) => ({
    id: t.int({ required: true, description: 'The id that REST knows.' }),
    paths: t.stringList({ description: 'Logical paths that the request holds or waits for.' }),
    match: t.string({ description: 'A plain, case-sensitive substring of the paths of the request.' }),
  }),
});

builder.mutationFields((t) => ({
  releaseFiles: t.field({
    authScopes: { operation: 'releaseFiles' },
    type: RequestType,
    description:
      'Lets files of a request go before its end: their charge is given back, and they never join it again. ' +
      'Releasing them twice changes nothing; a request that has ended is refused.',
    errors: { types: [InvalidInputError, NotFoundError, ForbiddenError], union: { name: 'ReleaseFilesResult' } },
    args: { input: t.arg({ type: ReleaseFilesInput, required: true, description: 'Which files.' }) },
    resolve: async (_root, { input }, ctx) => readBack(getRequest(ctx, await releaseFiles(ctx, input))),
  }),
}));
