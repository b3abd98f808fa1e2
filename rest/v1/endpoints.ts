/** Endpoints of the REST contract. The routes and the OpenAPI document are generated from this table. */
import type { ErrorRequestHandler, Request, Router } from 'express';
import type { Logger } from 'pino';
import type { Context } from '../../src/domain/context.js';
import { createErrorHandler } from '../../src/gateway/http/http-errors.js';
import * as files from './files.js';
import { arrayOfOne, headerForms, type JsonSchema, pathForms, queryForms, refTo } from './forms.js';
import * as quotas from './quotas.js';
import * as requests from './requests.js';
import { sendError } from './respond.js';
import { createRouter, type Handler, type Route } from './routes.js';

export interface Parameter {
  name: string;
  in: 'path' | 'query' | 'header';
  description: string;
  schema: JsonSchema;
  example?: string | number;
}

export interface Endpoint {
  method: 'get' | 'post' | 'put';
  path: string;
  /** Name of the endpoint's method in client libraries that are generated from the OpenAPI document. */
  name: string;
  handler: Handler;
  summary: string;
  description: string;
  parameters: readonly Parameter[];
  body?: readonly { form: JsonSchema; example: object }[];
  answer: { form: JsonSchema; description: string; example: object };
  errors: Readonly<Record<number, string>>;
}

const requestId: Parameter = {
  name: 'id',
  in: 'path',
  description: "The request's id, as returned by `POST /requests`",
  schema: pathForms.id,
  example: 1,
};

const idempotencyKey: Parameter = {
  name: 'Idempotency-Key',
  in: 'header',
  description:
    'A key that makes it safe to repeat the call, for example a random UUID: 1 to 255 visible ASCII characters, with or without quotation marks around them. For 24 hours, a call with the same key and body returns the id of the request that the first call created, and changes nothing. If the first call failed, its key is not stored',
  schema: headerForms['Idempotency-Key'],
  example: '8e03978e-40d5-43dd-bc93-6894a57f9324',
};

const NO_REQUEST = 'the request does not exist, or the caller is not allowed to see it';
const bodyErrors = {
  400: 'the body or a value is invalid',
  408: 'the client stopped sending the body',
  413: 'the body is longer than 32 MB',
  415: 'the request body is compressed: send it uncompressed',
};

const summary = {
  id: 1,
  quota: 'alice',
  retention: '2026-11-26T17:57:18.562490',
  request_date: '2026-11-21T17:57:18.562490',
  label: '/demo/ocean/2024',
};
const progress = {
  tapestore_request_start: '2026-11-21T17:57:18.946147',
  tapestore_request_end: '2026-11-21T17:57:19.781225',
  first_files_on_disk: '2026-11-21T17:57:19.781225',
  last_files_on_disk: '2026-11-21T17:57:19.781225',
};

export const endpoints: readonly Endpoint[] = [
  {
    ...{ method: 'get', path: '/requests', name: 'listRequests', handler: requests.getAll },
    summary: 'List requests',
    description: 'Returns the requests that have not expired and that the caller may see, oldest first.',
    parameters: [],
    answer: { form: refTo('Requests'), description: 'the requests', example: { requests: [summary] } },
    errors: {},
  },
  {
    ...{ method: 'post', path: '/requests', name: 'createRequest', handler: requests.post },
    summary: 'Create a request',
    description:
      'Requests the files that match a pattern, or a list of files. Charges the quota immediately. If the quota does not have enough room for all files, the whole request is rejected.',
    parameters: [idempotencyKey],
    body: [
      { form: refTo('RequestByPattern'), example: { quota: 'alice', patterns: '/demo/ocean/2024' } },
      {
        form: refTo('RequestByFiles'),
        example: { quota: 'alice', label: 'January', files: ['/demo/ocean/2023/sst_202301.nc'] },
      },
    ],
    answer: { form: refTo('RequestId'), description: 'the request was created', example: { req_id: 1 } },
    errors: {
      ...bodyErrors,
      403: 'the quota is full, the user is unknown or has reached a site limit, or the caller lacks permission',
      422: 'the caller has already created a request with the same `Idempotency-Key` and another body',
    },
  },
  {
    ...{ method: 'get', path: '/requests/{id}', name: 'getRequest', handler: requests.getOne },
    summary: 'Show a request with its files',
    description:
      'The response omits each of the four progress times until the time is known. A request is finished when `last_files_on_disk` is present. If `tapestore_request_end` is present but `last_files_on_disk` is missing, all files of the request failed.',
    parameters: [requestId],
    answer: {
      form: refTo('Request'),
      description: 'the request',
      example: {
        id: 1,
        quota: 'alice',
        retention: summary.retention,
        request_date: summary.request_date,
        request_patterns: '/demo/ocean/2024',
        notify_on_first_file: null,
        notify_on_last_file: 'ada@example.org',
        label: summary.label,
        ...progress,
        files: ['/demo/ocean/2024/sst_202401.nc', '/demo/ocean/2024/sst_202402.nc'],
      },
    },
    errors: { 404: NO_REQUEST },
  },
  {
    ...{ method: 'put', path: '/requests/{id}', name: 'updateRequest', handler: requests.put },
    summary: 'Change a request',
    description:
      'Changes the given fields: the retention, the label or the two email addresses. Null removes an address. A retention in the past ends the request. A retention in the future revives an ended request and charges the quota again.',
    parameters: [requestId],
    body: [
      {
        form: refTo('RequestChange'),
        example: { quota: 'alice', retention: '2026-12-01', label: 'ocean 2024', notify_on_last_file: '' },
      },
    ],
    answer: { form: refTo('RequestId'), description: 'the request was changed', example: { req_id: 1 } },
    errors: {
      ...bodyErrors,
      403: 'the user is unknown, the request belongs to another quota, the quota is full, or the caller lacks permission',
      404: NO_REQUEST,
    },
  },
  {
    ...{ method: 'get', path: '/files', name: 'listFiles', handler: files.getAll },
    summary: 'List tape files',
    description:
      'Returns all matching files at once, sorted by the bytes of their paths. Without parameters, returns the whole catalogue.',
    parameters: [
      {
        name: 'match',
        in: 'query',
        description: 'A plain, case-sensitive substring of the paths',
        schema: queryForms.match,
        example: '/2024/sst_202401',
      },
      {
        name: 'stages',
        in: 'query',
        description: 'The letters of the stages to list, in any order and case',
        schema: queryForms.stages,
        example: 'RT',
      },
      {
        name: 'spot-name',
        in: 'query',
        description: 'Whether to return the `spot-name` of each file',
        schema: queryForms['spot-name'],
        example: 'true',
      },
    ],
    answer: {
      form: refTo('TapeFiles'),
      description: 'the files, and the number of files',
      example: {
        count: 1,
        files: [
          {
            path: '/demo/ocean/2024/sst_202401.nc',
            'spot-name': 'spot-demo',
            stage: 'R',
            verified: '2026-11-21T17:57:13.236248',
            size: 1500000,
          },
        ],
      },
    },
    errors: { 400: 'a parameter is repeated or invalid' },
  },
  {
    ...{ method: 'get', path: '/quota/{user}', name: 'getQuota', handler: quotas.getOne },
    summary: "Show a user's quota and live requests",
    description:
      '`used` is the total charge of the listed requests. Sizes are exact integers, which can be larger than a double can represent exactly.',
    parameters: [
      { name: 'user', in: 'path', description: "The user's name", schema: pathForms.user, example: 'alice' },
    ],
    answer: {
      form: refTo('Quota'),
      description: 'the quota',
      example: {
        id: 2,
        user: 'alice',
        size: 100000000,
        used: 12000000,
        email: 'alice@example.org',
        notes: 'demo',
        requests: [
          {
            id: 1,
            request_date: summary.request_date,
            retention: summary.retention,
            label: summary.label,
            ...progress,
          },
        ],
      },
    },
    errors: { 404: 'the user does not exist, or the caller is not allowed to see it' },
  },
];

export const commonErrors: Readonly<Record<number, string>> = {
  400: 'the path, the query or the host is invalid',
  401: 'authentication is required',
  403: 'the caller lacks permission, or the request comes from a web page of another origin',
  421: 'the gateway is not configured for this host name',
  429: 'the caller has reached a limit: retry after the number of seconds in `Retry-After`',
  500: 'an internal error occurred, or the connection to the database was lost before the change was confirmed: before you send the request again, check whether the change was made',
  503: 'the database does not answer or is too busy: retry after the number of seconds in `Retry-After`',
};

export const answerForm = ({ answer }: Endpoint): JsonSchema => arrayOfOne(answer.form);

/** Returns the schema of an endpoint's request body: an array of one object, or a bare object. */
export function bodyForm({ body = [] }: Endpoint): JsonSchema {
  return { oneOf: body.flatMap(({ form }) => [arrayOfOne(form), form]) };
}

export function routesOf(table: readonly Endpoint[]): Route[] {
  const routes = new Map<string, Route>();
  for (const { method, path, handler } of table) {
    const route = routes.get(path) ?? { path: path.replace(/\{(\w+)\}/g, ':$1') };
    route[method] = handler;
    routes.set(path, route);
  }
  return [...routes.values()];
}

/** Creates the router, which must be mounted at /tape_control/api/v1. */
export const createRestRouter = (contextOf: (req: Request) => Context): Router =>
  createRouter(routesOf(endpoints), contextOf);

/** Creates the error handler, which the caller must mount after the router. */
export const createRestErrorHandler = (log: Logger): ErrorRequestHandler => createErrorHandler(log, 'REST', sendError);
