/** Files of a request that have failed are tried again. */
import { ForbiddenError, InvalidInputError, NotFoundError, UnknownUserError, WrongQuotaError } from '../src/errors.js';
import { getRequest } from '../src/operations/requests/rows.js';
import { retryRequest } from '../src/operations/requests/update.js';
import { builder } from './builder.js';
import { readBack } from './errors.js';
import { RequestType } from './requests.js';

const RetryRequestInput = builder.inputType('RetryRequestInput', {
  description: 'Which request has its failed files tried again.',
  fields: (t) => ({
    id: t.int({ required: true, description: 'The id that REST knows.' }),
    quota: t.string({ description: 'When given, it must be the quota of the request.' }),
  }),
});

builder.mutationFields((t) => ({
  retryRequest: t.field({
    authScopes: { operation: 'retryRequest' },
    type: RequestType,
    description:
      'Has all files of a request that have failed tried again, with all their tries before them. ' +
      'A request without failed files is left as it is; one that has ended is refused.',
    errors: {
      types: [InvalidInputError, NotFoundError, UnknownUserError, WrongQuotaError, ForbiddenError],
      union: { name: 'RetryRequestResult' },
    },
    args: { input: t.arg({ type: RetryRequestInput, required: true, description: 'Which request.' }) },
    resolve: async (_root, { input }, ctx) => readBack(getRequest(ctx, await retryRequest(ctx, input))),
  }),
}));
