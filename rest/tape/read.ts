/** Reads the bodies of the WLCG Tape REST API. What it does not know is passed over; what it knows is checked. */
import type { Request } from 'express';
import { InvalidInputError, quote } from '../../src/errors.js';
import { HttpError, readJsonBody } from '../../src/http-body.js';
import { nameOf } from '../body.js';
import { readDuration } from './duration.js';
import { toLogicalPath } from './paths.js';

export interface StagedFile {
  path: string;
  given: string;
  lifetimeSeconds: number | undefined;
}

export interface StageBody {
  files: StagedFile[];
  /** Of the quotas that targeted metadata name, each once. */
  quotas: string[];
}

/** Characters of a path as it is written, which is kept: percent-encoded the longest has three quarters of them. */
const MOST_GIVEN = 8192;

/** @throws HttpError 400, 413, 415; InvalidInputError */
export async function readStage(req: Request, siteName: string): Promise<StageBody> {
  const { files } = await readObject(req);
  const list = listOf('files', files);
  const quotas = new Set<string>();
  const staged = list.map((entry, n): StagedFile => {
    const field = `files[${n}]`;
    if (!isObject(entry)) throw new InvalidInputError(field, `must be an object, not ${nameOf(entry)}`);
    const given = textOf(`${field}.path`, entry.path);
    if (given.length > MOST_GIVEN)
      throw new InvalidInputError(`${field}.path`, `must have at most ${MOST_GIVEN} characters, not ${given.length}`);
    const lifetime = entry.diskLifetime ?? undefined;
    const quota = quotaOf(entry.targetedMetadata, siteName);
    if (quota !== undefined) quotas.add(quota);
    const lifetimeSeconds =
      lifetime === undefined
        ? undefined
        : readDuration(`${field}.diskLifetime`, textOf(`${field}.diskLifetime`, lifetime));
    return { path: toLogicalPath(given), given, lifetimeSeconds };
  });
  return { files: staged, quotas: [...quotas] };
}

/** @returns as they are written @throws HttpError 400, 413, 415; InvalidInputError */
export async function readPaths(req: Request): Promise<string[]> {
  const { paths } = await readObject(req);
  const list = listOf('paths', paths);
  return list.map((path, n) => textOf(`paths[${n}]`, path));
}

type Fields = Record<string, unknown>;

async function readObject(req: Request): Promise<Fields> {
  const value = await readJsonBody(req);
  if (isObject(value)) return value;
  throw new HttpError(400, `the body must be an object, not ${nameOf(value)}`);
}

/** What is meant for this site, or for whichever it is. Metadata of other sites, and whatever else there is, are nobody's here. */
function quotaOf(metadata: unknown, siteName: string): string | undefined {
  for (const site of [siteName, 'default']) {
    const own = isObject(metadata) && Object.hasOwn(metadata, site) ? metadata[site] : undefined;
    if (isObject(own) && typeof own.quota === 'string' && own.quota !== '') return own.quota;
  }
  return undefined;
}

function listOf(field: string, value: unknown): unknown[] {
  if (!Array.isArray(value)) throw new InvalidInputError(field, `must be a list, not ${nameOf(value)}`);
  if (value.length === 0) throw new InvalidInputError(field, 'must not be empty');
  return value;
}

function textOf(field: string, value: unknown): string {
  if (typeof value !== 'string') throw new InvalidInputError(field, `must be a string, not ${nameOf(value)}`);
  if (value === '') throw new InvalidInputError(field, 'must not be empty');
  if (value.includes('\0') || !value.isWellFormed())
    throw new InvalidInputError(field, `must be text: ${quote(value)}`);
  return value;
}

const isObject = (value: unknown): value is Fields =>
  typeof value === 'object' && value !== null && !Array.isArray(value);
