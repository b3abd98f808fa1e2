/** Endpoints of the WLCG Tape REST API, version 1. */
import type { Request, Response } from 'express';
import { InvalidInputError, quote } from '../../src/core/errors.js';
import { secondsOf } from '../../src/core/time.js';
import type { Context } from '../../src/domain/context.js';
import { findPathProblem } from '../../src/domain/input.js';
import {
  cancelStageRequestFiles,
  createStageRequest,
  type LocalityProblem,
  type LocalityRow,
  readLocalities,
  readQuotasOfCaller,
  readStageRequest,
  releaseInAllStageRequests,
  releaseStageRequestFiles,
  removeStageRequest,
  type StageRequestFileRow,
  type StageRequestRow,
} from '../../src/domain/stage-requests/stage-requests.js';
import { pathsBody, readStage, readTapeBody } from '../v1/body.js';
import { toLogicalPath } from '../v1/paths.js';
import { sendList, sendText } from '../v1/respond.js';
import { apiUrl, siteNameOf } from './discovery.js';

export async function stage(ctx: Context, req: Request, res: Response): Promise<void> {
  const siteName = siteNameOf(ctx.config, req);
  const { files, quotas } = await readStage(req, siteName);
  const quota = await chooseQuota(ctx, quotas, siteName);
  const requestId = await createStageRequest(ctx, { quota, files });
  res.location(`${apiUrl(ctx.config, req)}/stage/${requestId}`);
  sendText(res, 201, JSON.stringify({ requestId }));
}

async function chooseQuota(ctx: Context, named: readonly string[], siteName: string): Promise<string> {
  const field = `targetedMetadata.${JSON.stringify(siteName)}.quota`;
  const [first, ...others] = named;
  if (others.length > 0) {
    const some = named.slice(0, 3).map(quote).join(' and ');
    const more = named.length > 3 ? ` and ${named.length - 3} more` : '';
    throw new InvalidInputError(field, `must name the same quota for all files of a request, not ${some}${more}`);
  }
  if (first !== undefined) return first;
  const own = await readQuotasOfCaller(ctx);
  const [only, ...more] = own ?? [];
  if (only !== undefined && more.length === 0) return only;
  if (own?.length === 0)
    throw new InvalidInputError(field, `must name the quota to charge, because ${quote(ctx.caller.name)} has no quota`);
  const some = own
    ? `${quote(ctx.caller.name)} has ${own.length} quotas: ${own.slice(0, 10).map(quote).join(', ')}`
    : 'you are allowed to charge any quota';
  throw new InvalidInputError(field, `must name the quota to charge; ${some}`);
}

export async function poll(ctx: Context, req: Request, res: Response): Promise<void> {
  await readStageRequest(ctx, String(req.params.id), async (stageRequest, pages) => {
    const head = `${JSON.stringify(presentStageRequest(stageRequest)).slice(0, -1)},"files":[`;
    await sendList(res, { head, pages, present: presentFile, tail: ']}' });
  });
}

export async function cancel(ctx: Context, req: Request, res: Response): Promise<void> {
  await cancelStageRequestFiles(ctx, String(req.params.id), await readLogicalPaths(ctx, req));
  res.status(200).end();
}

export async function remove(ctx: Context, req: Request, res: Response): Promise<void> {
  await removeStageRequest(ctx, String(req.params.id));
  res.status(200).end();
}

/** Placeholder that gfal2 sends as the request id if the user does not specify a request id. */
const ANY_REQUEST = 'gfal2-placeholder-id';

export async function release(ctx: Context, req: Request, res: Response): Promise<void> {
  const id = String(req.params.id);
  const paths = await readLogicalPaths(ctx, req);
  if (id === ANY_REQUEST) await releaseInAllStageRequests(ctx, paths);
  else await releaseStageRequestFiles(ctx, id, paths);
  res.status(200).end();
}

async function readLogicalPaths({ config }: Context, req: Request): Promise<string[]> {
  const { paths } = await readTapeBody(req, pathsBody);
  const most = config.limits.requestPaths;
  if (paths.length > most)
    throw new InvalidInputError('paths', `must contain at most ${most} paths, not ${paths.length}`);
  return [...new Set(paths.map(toLogicalPath))];
}

const PAGE = 1000;

export async function archiveInfo(ctx: Context, req: Request, res: Response): Promise<void> {
  const given = new Map<string, string>();
  // answer only for the first paths in a long list: the specification allows a partial response, and the client then
  // repeats the remaining paths
  const { paths } = await readTapeBody(req, pathsBody);
  for (const path of paths.slice(0, ctx.config.limits.requestPaths)) {
    const logical = toLogicalPath(path);
    if (!given.has(logical)) given.set(logical, path);
  }
  const all = [...given];
  const pages = async function* read() {
    for (let at = 0; at < all.length; at += PAGE) {
      const page = all.slice(at, at + PAGE);
      const rows = await readLocalities(
        ctx,
        page.map(([path]) => path).filter((path) => findPathProblem(path) === undefined),
      );
      const found = new Map(rows.map((row) => [row.path, row]));
      yield page.map(([path, written]) => presentLocality(written, found.get(path)));
    }
  };
  await sendList(res, { head: '[', pages: { [Symbol.asyncIterator]: pages }, present: (info) => info, tail: ']' });
}

/** Converts a time to whole seconds since 1970. */
const toSeconds = (time: string) => Math.floor(secondsOf(time));

function presentStageRequest({ id, madeAt, startedAt, endedAt }: StageRequestRow) {
  const createdAt = toSeconds(madeAt);
  return {
    id,
    createdAt,
    startedAt: startedAt === null ? createdAt : toSeconds(startedAt),
    ...(endedAt !== null && { completedAt: toSeconds(endedAt) }),
  };
}

function presentFile({ given, state, startedAt, problem, error, isLate }: StageRequestFileRow) {
  const text =
    problem === null
      ? (error ?? (isLate ? 'the disk lifetime of the file ended before the file was restored' : null))
      : problems[problem];
  return {
    path: given,
    state,
    ...(state === 'STARTED' && startedAt !== null && { startedAt: toSeconds(startedAt) }),
    ...(text !== null && { error: text }),
  };
}

const problems: Record<LocalityProblem | 'QUOTA_FULL', string> = {
  UNKNOWN: 'there is no such file, or you are not allowed to request it',
  DIRECTORY: 'the path is a directory: request each file in the directory',
  ELSEWHERE:
    'the gateway serves only unchanged restored copies, but the file is at its primary path or was changed on disk',
  QUOTA_FULL: 'the quota has no room for the file',
  NOT_YOURS: 'you are not allowed to read the file',
  DISK_FAILS: 'the disk with the copy of the file is temporarily unavailable',
  VOLUME_AWAY: 'the volume that contains the file is suspended',
  NO_POSITION: 'the volume that contains the file is unknown',
};

function presentLocality(given: string, row: LocalityRow | undefined) {
  const { locality, problem } = row ?? { locality: null, problem: 'UNKNOWN' as const };
  return { path: given, ...(locality !== null && { locality }), ...(problem !== null && { error: problems[problem] }) };
}
