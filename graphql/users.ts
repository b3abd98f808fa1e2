/** People, of whom nothing is kept that they may have taken away. */
import { ForbiddenError, InUseError, InvalidInputError, NotFoundError } from '../src/errors.js';
import { type ForgetResult, forgetUser } from '../src/operations/users/forget.js';
import { builder } from './builder.js';

const ForgottenUser = builder.objectRef<ForgetResult>('ForgottenUser').implement({
  description: 'A user of whom nothing is kept any more, and in what a pseudonym stands in its place.',
  fields: (t) => ({
    pseudonym: t.exposeString('pseudonym', { description: 'What stands in place of the name.' }),
    requests: t.exposeInt('requests', { description: 'Requests that were told of the user.' }),
    letters: t.exposeInt('letters', { description: 'Mail to the user; what was not sent yet is not sent any more.' }),
    tokens: t.exposeInt('tokens', {
      description: 'Tokens that had the name; those that are called so are revoked, of whatever role.',
    }),
    auditRows: t.exposeInt('auditRows', { description: 'Rows of the audit.' }),
  }),
});

builder.mutationFields((t) => ({
  forgetUser: t.field({
    authScopes: { operation: 'forgetUser' },
    type: ForgottenUser,
    description:
      'Puts a pseudonym in place of the name and the addresses of a user without live requests, for good. A second time there is nothing of the user.',
    errors: {
      types: [InvalidInputError, NotFoundError, InUseError, ForbiddenError],
      union: { name: 'ForgetUserResult' },
    },
    args: { user: t.arg.string({ required: true, description: 'Its name.' }) },
    resolve: (_root, { user }, ctx) => forgetUser(ctx, user),
  }),
}));
