/**
 * The endpoints of the REST contract: handlers, inputs and responses. The routes, the OpenAPI document and its page are
 * generated from this table.
 */
import type { ErrorRequestHandler, Request, Router } from 'express';
import type { Logger } from 'pino';
import type { Context } from '../../src/domain/context.js';
import { createErrorHandler } from '../../src/gateway/http/http-errors.js';
import * as files from './files.js';
import { arrayOfOne, type JsonSchema, pathForms, queryForms, refTo } from './forms.js';
import * as quotas from './quotas.js';
import * as requests from './requests.js';
import { sendError } from './respond.js';
import { createRouter, type Handler, type Route } from './routes.js';

export interface Parameter {
  name: string;
  in: 'path' | 'query';
  description: string;
  schema: JsonSchema;
  example?: string | number;
}

export interface Endpoint {
  method: 'get' | 'post' | 'put';
  /** Relative to the prefix, with parameters in braces. */
  path: string;
  /** The name of the method in generated clients. */
  name: string;
  handler: Handler;
  summary: string;
  description: string;
  parameters: readonly Parameter[];
  body?: readonly { form: JsonSchema; example: object }[];
  answer: { form: JsonSchema; description: string; example: object };
  /** In addition to `commonErrors`. */
  errors: Readonly<Record<number, string>>;
}

const requestId: Parameter = {
  name: 'id',
  in: 'path',
  description: 'Of the request, as it was answered when that was made',
  schema: pathForms.id,
  example: 1,
};

const NO_REQUEST = 'there is no request with that id, or none that the caller may see';
const bodyErrors = {
  400: 'the body cannot be understood, or a value is not allowed',
  408: 'the body stands still',
  413: 'the body is longer than 32 MB',
  415: 'the body is compressed',
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
    summary: 'All requests',
    description: 'Those that have not passed their retention date and that the caller may see, the oldest first.',
    parameters: [],
    answer: { form: refTo('Requests'), description: 'the requests', example: { requests: [summary] } },
    errors: {},
  },
  {
    ...{ method: 'post', path: '/requests', name: 'createRequest', handler: requests.post },
    summary: 'Ask for files',
    description:
      'By a part of their paths, or by a list. The files are charged to the quota at once; those that do not fit are refused as a whole.',
    parameters: [],
    body: [
      { form: refTo('RequestByPattern'), example: { quota: 'alice', patterns: '/demo/ocean/2024' } },
      {
        form: refTo('RequestByFiles'),
        example: { quota: 'alice', label: 'January', files: ['/demo/ocean/2023/sst_202301.nc'] },
      },
    ],
    answer: { form: refTo('RequestId'), description: 'the request was made', example: { req_id: 1 } },
    errors: {
      ...bodyErrors,
      403: 'the quota is full, the user is unknown, has as much at once as the site allows, or the caller may not',
    },
  },
  {
    ...{ method: 'get', path: '/requests/{id}', name: 'getRequest', handler: requests.getOne },
    summary: 'One request, with its files',
    description:
      'The four times of progress are absent until they are known. A request is over when it has `last_files_on_disk`, or ' +
      '`tapestore_request_end` alone, which says that none of its files could be brought back.',
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
      'What is given of its retention, its label and its two addresses; null removes an address. A retention that has passed ends the ' +
      'request at once, a later one revives it, charged again.',
    parameters: [requestId],
    body: [
      {
        form: refTo('RequestChange'),
        example: { quota: 'alice', retention: '2026-12-01', label: 'ocean 2024', notify_on_last_file: '' },
      },
    ],
    answer: { form: refTo('RequestId'), description: 'the request is as it is wanted', example: { req_id: 1 } },
    errors: {
      ...bodyErrors,
      403: 'the user is unknown, the request belongs to another quota, that is full, or the caller may not',
      404: NO_REQUEST,
    },
  },
  {
    ...{ method: 'get', path: '/files', name: 'listFiles', handler: files.getAll },
    summary: 'Tape files',
    description:
      'In order of the bytes of their paths. There are no pages: without parameters, the whole catalogue is listed.',
    parameters: [
      {
        name: 'match',
        in: 'query',
        description: 'A part of the paths: case counts, and no character is a wildcard',
        schema: queryForms.match,
        example: '/2024/sst_202401',
      },
      {
        name: 'stages',
        in: 'query',
        description: 'Letters of stages, in any order and case: only files at those are listed',
        schema: queryForms.stages,
        example: 'RT',
      },
      {
        name: 'spot-name',
        in: 'query',
        description: 'Whether each file has its `spot-name`',
        schema: queryForms['spot-name'],
        example: 'true',
      },
    ],
    answer: {
      form: refTo('TapeFiles'),
      description: 'the files, and how many they are',
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
    errors: { 400: 'a parameter is given twice, or its value is not allowed' },
  },
  {
    ...{ method: 'get', path: '/quota/{user}', name: 'getQuota', handler: quotas.getOne },
    summary: 'A user, the quota, and its requests',
    description:
      '`used` is what the requests that are listed here are charged. Sizes are exact, and may be more than a double holds.',
    parameters: [
      { name: 'user', in: 'path', description: 'The name of the user', schema: pathForms.user, example: 'alice' },
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
    errors: { 404: 'there is no such user, or none that the caller may see' },
  },
];

export const commonErrors: Readonly<Record<number, string>> = {
  400: 'the path, the query or the host cannot be understood',
  401: 'the door is closed, and nobody is known by what the request shows',
  403: 'the caller may not, or a page of another origin asks',
  421: 'the gateway does not go by that name',
  429: 'the caller asks for too much at once: come again after the seconds of `Retry-After`',
  500: 'a fault of the service; or the database was lost before it said that a change is stored: look before you repeat it',
  503: 'the database does not answer, or is too busy: come again after the seconds of `Retry-After`',
};

export const answerForm = ({ answer }: Endpoint): JsonSchema => arrayOfOne(answer.form);

/** A body is an array of one object; a bare object is accepted as well. */
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

/** Must be mounted at /tape_control/api/v1. */
export const createRestRouter = (contextOf: (req: Request) => Context): Router =>
  createRouter(routesOf(endpoints), contextOf);

/** Must follow the router. */
export const createRestErrorHandler = (log: Logger): ErrorRequestHandler => createErrorHandler(log, 'REST', sendError);
