/** The REST contract as a document of OpenAPI 3.1, made of the table of its endpoints and served at `/openapi.json`. */
import type { RequestHandler } from 'express';
import { KeptBody } from '../../src/gateway/http/encodings.js';
import { checkMethod } from '../../src/gateway/http/http-body.js';
import { answerForm, bodyForm, commonErrors, type Endpoint, endpoints } from './endpoints.js';
import { arrayOfOne, forms, refTo } from './forms.js';

export const REST_PREFIX = '/tape_control/api/v1';

/** What every endpoint has in common, for those who read it. */
const DESCRIPTION = `Restores files from tape to a disk restore area, on request, within per-user quotas.

Every body, of an error too, is a JSON array of exactly one object. The object of an error has its message twice, as \`error\` and \`error_msg\`.
Times are UTC without a zone, \`YYYY-MM-DDTHH:MM:SS\` with six digits of fraction where they are not zero. Integers are exact at any size.
In bodies null and an empty text count as not given, unless a field says otherwise, and unknown fields are passed over.
HEAD is answered as GET is, without the body; a method that a path does not have by 405, with \`Allow\`.`;

/** Answers GET and HEAD of the document. @param publicUrl where users find the gateway */
export function createOpenapi(publicUrl: string | undefined): RequestHandler {
  let body: KeptBody | undefined;
  return (req, res, next) => {
    checkMethod(req, ['GET', 'HEAD']);
    body ??= new KeptBody(Buffer.from(formatRest(publicUrl))); // when it is first asked for
    res.setHeader('Content-Type', 'application/json');
    body.send(res).catch(next);
  };
}

/** Returns the text of the document. */
export function formatRest(publicUrl?: string): string {
  return `${JSON.stringify(describeRest(publicUrl), null, 2)}\n`;
}

/** @param publicUrl where users find the gateway; unless given, the document's own host is meant */
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
        bearer: { type: 'http', scheme: 'bearer', description: 'A token. None is needed where the door is open.' },
        basic: { type: 'http', scheme: 'basic', description: 'A token as the password, whatever the name.' },
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

/** Its own go before those of all. */
const errorsOf = ({ errors }: Endpoint): [status: string, words: string][] =>
  Object.entries({ ...commonErrors, ...errors });

const sentence = (words: string) => `${words.charAt(0).toUpperCase()}${words.slice(1)}.`;
