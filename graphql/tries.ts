/** How it goes with a file that a request waits for: tries, errors, the next try. And which requests go first. */

import type { Context } from '../src/context.js';
import { ForbiddenError, InvalidInputError, NotFoundError } from '../src/errors.js';
import { RecallState } from '../src/generated/prisma/enums.js';
import { type HoldKey, keyOf, readTries, type Tries } from '../src/operations/recalls/queue.js';
import { getRequest } from '../src/operations/requests/rows.js';
import { setPriority } from '../src/operations/requests/update.js';
import { createBatch } from './batch.js';
import { builder } from './builder.js';
import { ErrorClassType } from './holds.js';
import { RequestType } from './requests.js';

const RecallStateType = builder.enumType('RecallState', {
  description: 'Whether a recall has begun.',
  values: {
    [RecallState.WAITING]: { description: 'Not yet, or it is tried again.' },
    [RecallState.RUNNING]: { description: 'A drive has it in hand.' },
  },
});

const tries = createBatch<string, Tries>((ctx, keys) => readTries(ctx, keys.map(holdOf)));
const triesOf = (ctx: Context, hold: HoldKey) => tries(ctx, keyOf(hold));

function holdOf(key: string): HoldKey {
  const [requestId, fileId] = key.split('/');
  return { requestId: Number(requestId), fileId: BigInt(fileId ?? 0) };
}

builder.prismaObjectFields('Hold', (t) => ({
  recallState: t.field({
    type: RecallStateType,
    nullable: true,
    description: 'Of the recall that it waits for; null when it waits for none.',
    resolve: async (hold, _args, ctx) => (await triesOf(ctx, hold))?.state ?? null,
  }),
  attempts: t.int({
    nullable: true,
    description: 'Tries that have failed; null when it waits for no recall.',
    resolve: async (hold, _args, ctx) => (await triesOf(ctx, hold))?.attempts ?? null,
  }),
  lastErrorClass: t.field({
    type: ErrorClassType,
    nullable: true,
    description: 'Of the last try, or of the end; null: nothing has failed.',
    resolve: async (hold, _args, ctx) => hold.errorClass ?? (await triesOf(ctx, hold))?.errorClass ?? null,
  }),
  lastError: t.string({
    nullable: true,
    description:
      'Why the last try failed, or the next one cannot begin, or why the file was given up; null: nothing has failed.',
    resolve: async (hold, _args, ctx) => hold.error ?? (await triesOf(ctx, hold))?.error ?? null,
  }),
  nextTry: t.field({
    type: 'DateTime',
    nullable: true,
    description: 'Not before this time; null when it runs, may begin at any time, or will not.',
    resolve: async (hold, _args, ctx) => (await triesOf(ctx, hold))?.nextTry ?? null,
  }),
}));

builder.prismaObjectField('Request', 'priority', (t) =>
  t.exposeInt('priority', { description: 'Files of requests with a greater one are recalled first; 0 is usual.' }),
);

builder.mutationFields((t) => ({
  setPriority: t.field({
    authScopes: { operation: 'setPriority' },
    type: RequestType,
    description: 'Says which requests go first.',
    errors: { types: [InvalidInputError, NotFoundError, ForbiddenError], union: { name: 'SetPriorityResult' } },
    args: {
      id: t.arg.int({ required: true, description: 'The id that REST knows.' }),
      priority: t.arg.int({ required: true, description: 'From -1000 to 1000; a greater one goes first.' }),
    },
    resolve: async (_root, input, ctx) => getRequest(ctx, await setPriority(ctx, input)),
  }),
}));
