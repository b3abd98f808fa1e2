/**
 * Results as JSON: an operation is run through the same pipeline as all others, and written to the response as it is. Yoga's own layer over
 * HTTP makes a Request, a Response and their streams for each, which was a fifth of the processor time of a request; its statuses are kept.
 */
import type { Request, Response } from 'express';
import { type ExecutionResult, GraphQLError, getOperationAST } from 'graphql';
import { sendEncoded } from '../src/encodings.js';
import type { Params } from './http.js';
import type { Pipeline } from './sse-operations.js';

export const RESULT_TYPES = ['application/json', 'application/graphql-response+json'];

type Steps = ReturnType<Pipeline['prepare']>;

/** An operation that was read, and is not validated yet; or what is wrong with it. */
export type Read = { steps: Steps; document: ReturnType<Steps['parse']> } | { steps: Steps; error: unknown };

export function readOperation(pipeline: Pipeline, input: { req: Request; res: Response; params: Params }): Read {
  // Yoga's checks of a request know its method by this
  const steps = pipeline.prepare({ ...input, request: { method: input.req.method } });
  try {
    checkNames(input.params);
    return { steps, document: steps.parse(input.params.query) };
  } catch (error) {
    return { steps, error };
  }
}

const PARAMS = new Set(['query', 'variables', 'operationName', 'extensions']);

/** @throws GraphQLError */
function checkNames(params: Params): void {
  for (const [name, value] of Object.entries(params)) {
    if (PARAMS.has(name) || value === null || value === undefined) continue;
    throw new GraphQLError(`Unexpected parameter "${name}" in the request body.`, {
      extensions: { code: 'BAD_REQUEST', http: { status: 400 } },
    });
  }
}

/** @param type one of RESULT_TYPES */
export async function tellResult(
  pipeline: Pipeline,
  read: Read,
  { res, params, type }: { res: Response; params: Params; type: string },
): Promise<void> {
  const result = await resultOf(pipeline, read, params);
  const { status, headers } = headOf(result, type);
  const body = Buffer.from(JSON.stringify(withoutInternals(result)));
  res.status(status).set(headers);
  res.setHeader('Content-Type', `${type}; charset=utf-8`);
  sendEncoded(res, body, { isSecret: !isQuery(read, params) });
}

/** A mutation may answer with a new token beside the name that its asker has chosen. */
function isQuery(read: Read, { operationName }: Params): boolean {
  return 'document' in read && getOperationAST(read.document, operationName)?.operation === 'query';
}

async function resultOf(pipeline: Pipeline, read: Read, params: Params): Promise<ExecutionResult> {
  try {
    if ('error' in read) throw read.error;
    const { steps, document } = read;
    const faults = steps.validate(steps.schema, document);
    if (faults.length > 0) return { errors: faults };
    const contextValue = await steps.contextFactory();
    const result = await steps.execute({
      schema: steps.schema,
      document,
      contextValue,
      variableValues: params.variables ?? null,
      operationName: params.operationName ?? null,
    });
    if ('next' in result) throw new Error('an operation that is no subscription has one result');
    return result;
  } catch (error) {
    return { errors: [pipeline.maskError(error) as GraphQLError] };
  }
}

/** What an error says of the answer to its request; `spec`: only where the media type is GraphQL's own. */
interface HttpOfError {
  status?: number;
  headers?: Record<string, string>;
  spec?: boolean;
}

/**
 * The greatest status of its errors. Of `application/json` clients expect 200 for whatever the operation itself is at fault for, which the
 * specification of GraphQL over HTTP leaves to them.
 */
function headOf({ errors = [] }: ExecutionResult, type: string): { status: number; headers: Record<string, string> } {
  const headers = {};
  let status = 200;
  for (const { extensions } of errors) {
    const http = extensions.http as HttpOfError | undefined;
    Object.assign(headers, http?.headers);
    if (http?.spec && type === 'application/json') continue;
    status = Math.max(status, http?.status ?? 0);
  }
  return { status, headers };
}

function withoutInternals({ errors, ...others }: ExecutionResult): object {
  if (!errors) return others;
  const plain = errors.map((error) => {
    const { extensions, ...told } = error.toJSON();
    const { http: _, unexpected: __, ...shown } = extensions ?? {};
    return Object.keys(shown).length > 0 ? { ...told, extensions: shown } : told;
  });
  return { ...others, errors: plain };
}
