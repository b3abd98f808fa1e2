/** Serves the GraphQL schema as text, for people and code generators. */
import type { Request, Response } from 'express';
import { type GraphQLSchema, lexicographicSortSchema, printSchema } from 'graphql';
import { KeptBody } from '../../src/gateway/http/encodings.js';
import { checkMethod, HttpError } from '../../src/gateway/http/http-body.js';
import { schema } from '../schema/schema.js';

export const SDL_PATH = '/schema.graphql';

/** @param isPublic whether the site allows introspection */
export function createSdl(isPublic: boolean): (req: Request, res: Response) => Promise<void> {
  let body: KeptBody | undefined;
  return async (req, res) => {
    if (!isPublic) throw new HttpError(404, `there is nothing at ${req.originalUrl.split('?')[0]}`);
    checkMethod(req, ['GET', 'HEAD']);
    body ??= new KeptBody(Buffer.from(printSorted(schema)));
    res.setHeader('Content-Type', 'text/plain; charset=utf-8');
    await body.send(res);
  };
}

const LINE_WIDTH = 120;

export function printSorted(schema: GraphQLSchema): string {
  const text = printSchema(lexicographicSortSchema(schema))
    .replace(/^( *)"""(.+)"""$/gm, '$1"""\n$1$2\n$1"""')
    .replace(/^union \w+ = .+$/gm, wrapUnion);
  return `${text}\n`;
}

function wrapUnion(line: string): string {
  return line.length <= LINE_WIDTH ? line : line.replace(' = ', ' =\n  | ').replaceAll(/(?<=\w) \| /g, '\n  | ');
}
