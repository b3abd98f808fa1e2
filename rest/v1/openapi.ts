/** The OpenAPI 3.1 document of the REST contract, served at `/openapi.json`. */
import type { RequestHandler } from 'express';
import { KeptBody } from '../../src/gateway/http/encodings.js';
import { checkMethod } from '../../src/gateway/http/http-body.js';
import { answerForm, bodyForm, commonErrors, type Endpoint, endpoints } from './endpoints.js';
import { arrayOfOne, forms, refTo } from './forms.js';

export const REST_PREFIX = '/tape_control/api/v1';

const DESCRIPTION = `Restores requested files from tape to a restore area on disk, within per-user quotas.

Every body, including the body of an error response, is a JSON array of exactly one object. An error object contains the message twice, as \`error\` and \`error_msg\`.
Times are in UTC, written without a time zone: \`YYYY-MM-DDTHH:MM:SS\`. Six fractional digits follow, unless all of them are zero. Integers are exact at any size.
In request bodies, null or an empty string is treated as a missing field, unless the description of the field says otherwise. Unknown fields are ignored.
HEAD returns the same response as GET, without the body. If a path does not support a method, the response has status 405 and the header \`Allow\`.`;

/**
 * Creates the handler that serves the OpenAPI document.
 * @param publicUrl the gateway's URL for users
 */
export function createOpenapi(publicUrl: string | undefined): RequestHandler {
  let body: KeptBody | undefined;
  return (req, res, next) => {
    checkMethod(req, ['GET', 'HEAD']);
    body ??= new KeptBody(Buffer.from(formatRest(publicUrl)));
    res.setHeader('Content-Type', 'application/json');
    body.send(res).catch(next);
  };
}

export function formatRest(publicUrl?: string): string {
  return `${JSON.stringify(describeRest(publicUrl), null, 2)}\n`;
}

/**
 * Describes the REST contract as an OpenAPI document.
 * @param publicUrl the gateway's URL for users; if it is undefined, clients use the host that serves the document
 */
export function describeRest(publicUrl = '') {
  const paths: Record<string, Record<string, object>> = {};
  for (const endpoint of endpoints) {
    paths[endpoint.path] = { ...paths[endpoint.path], [endpoint.method]: describeEndpoint(endpoint) };
  }
  return {
    openapi: '3.1.1',
    info: {
      title: 'Tapegate: Tape Retrieval Service Interface',
      version: '1',
      summary: 'The REST contract',
      description: DESCRIPTION,
      license: { name: 'Apache-2.0', identifier: 'Apache-2.0' },
    },
    servers: [{ url: `${publicUrl.replace(/\/$/, '')}${REST_PREFIX}` }],
    security: [{ bearer: [] }, { basic: [] }, {}],
    paths,
    components: {
      schemas: forms,
      securitySchemes: {
        bearer: {
          type: 'http',
          scheme: 'bearer',
          description: 'A token. Not required if the site allows anonymous access.',
        },
        basic: { type: 'http', scheme: 'basic', description: 'A token as the password, with any user name.' },
      },
    },
  };
}

function describeEndpoint(endpoint: Endpoint): object {
  const { name, summary, description, parameters, body, answer } = endpoint;
  const json = (schema: object, examples: readonly object[]) => ({
    'application/json': {
      schema,
      examples: Object.fromEntries(examples.map((value, n) => [`example${n + 1}`, { value: [value] }])),
    },
  });
  return {
    operationId: name,
    summary,
    description,
    parameters: parameters.map((each) => ({ ...each, required: each.in === 'path' })),
    ...(body && {
      requestBody: {
        required: true,
        content: json(
          bodyForm(endpoint),
          body.map(({ example }) => example),
        ),
      },
    }),
    responses: {
      200: { description: sentence(answer.description), content: json(answerForm(endpoint), [answer.example]) },
      ...Object.fromEntries(errorsOf(endpoint).map(([status, words]) => [status, describeError(status, words)])),
    },
  };
}

function describeError(status: string, words: string): object {
  const headers = ['429', '503'].includes(status) && {
    'Retry-After': { description: 'Seconds', schema: { type: 'integer', minimum: 0 } },
  };
  return {
    description: sentence(words),
    ...(headers && { headers }),
    content: { 'application/json': { schema: arrayOfOne(refTo('Error')) } },
  };
}

/**
 * Returns an endpoint's errors by status. An endpoint's own text for a status replaces the default text for that
 * status.
 */
const errorsOf = ({ errors }: Endpoint): [status: string, words: string][] =>
  Object.entries({ ...commonErrors, ...errors });

const sentence = (words: string) => `${words.charAt(0).toUpperCase()}${words.slice(1)}.`;
