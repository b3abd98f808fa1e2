/** A request as a query asks for it: by one statement where it asks for columns, by Prisma where it asks for more. */
import { queryFromInfo } from '@pothos/plugin-prisma';
import type { GraphQLResolveInfo } from 'graphql';
import type { Context } from '../src/context.js';
import type { Request } from '../src/generated/prisma/client.js';
import { canChooseOfRequest, getChosenOfRequest } from '../src/operations/requests/chosen.js';
import { getRequest, type RequestQuery } from '../src/operations/requests/rows.js';
import { choiceOf } from './chosen-rows.js';

/** @throws NotFoundError */
export async function readRequest(ctx: Context, id: number, info: GraphQLResolveInfo): Promise<Request> {
  const choice = choiceOf(info);
  if (!choice || !canChooseOfRequest(choice)) {
    return await getRequest(ctx, id, queryFromInfo({ context: ctx, info }) as RequestQuery);
  }
  // it has what is asked of it, and no more
  return (await getChosenOfRequest(ctx, id, choice)) as object as Request;
}
