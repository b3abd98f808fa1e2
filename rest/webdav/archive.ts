/**
 * Answers GET requests for download links: sends several restored files as one zip archive. The archive is not
 * compressed, because its length is then known before it is sent. A client can thus detect an incomplete archive.
 */
import { hostname } from 'node:os';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import type { Request, RequestHandler, Response } from 'express';
import { ZipFile } from 'yazl';
import { logFailure } from '../../src/core/errors.js';
import type { Context } from '../../src/domain/context.js';
import { findHostsOf } from '../../src/domain/disks/disk-copies.js';
import {
  type DownloadableFile,
  type DownloadLink,
  findDownloadable,
  readLink,
  useLink,
} from '../../src/domain/disks/downloads.js';
import { unusableLink } from '../../src/gateway/auth/links.js';
import { HttpError } from '../../src/gateway/http/http-body.js';
import { explainClosed, refusalOf } from './file.js';
import type { Copies } from './send.js';

export const DOWNLOADS_ROOT = '/downloads';

/** Returns the path of a link's URL, relative to the gateway's URL. */
const pathOfLink = (secret: string): string => `${DOWNLOADS_ROOT}/${secret}`;

/** Creates the handler for download links, which must be mounted at `DOWNLOADS_ROOT` with the parameter `link`. */
export function createArchiveHandler(
  contextOf: (req: Request<{ link: string }>) => Context,
  { copies, enter }: { copies: Copies; enter(req: Request<{ link: string }>): () => void },
): RequestHandler<{ link: string }> {
  return async (req, res) => {
    const ctx = contextOf(req);
    if (req.method !== 'GET') throw new HttpError(405, 'a download link can only be used with GET', { Allow: 'GET' });
    if (ctx.config.transfer.webdav === 'off')
      throw new HttpError(404, 'this gateway does not serve file contents (TAPEGATE_WEBDAV is off)');
    const leave = enter(req);
    try {
      await getArchive(ctx, copies, req, res);
    } finally {
      leave();
    }
  };
}

/**
 * Sends the archive. With the query parameter `check`, only checks whether the link works, because a browser that saves a
 * link does not show why the download failed.
 */
async function getArchive(ctx: Context, copies: Copies, req: Request<{ link: string }>, res: Response): Promise<void> {
  const secret = req.params.link;
  const link = await readLink(ctx, secret);
  if (!link) throw unusableLink();
  const files = await findDownloadable(ctx, link.requestId, link.fileIds);
  const unserved = files.find(({ problem }) => problem !== null);
  if (unserved?.problem) throw refusalOf(unserved.problem, unserved.logicalPath);
  if (files.length < link.fileIds.length || files.length === 0)
    throw new HttpError(404, 'the request has ended, or some of its files are no longer in the catalogue');
  await checkReadable(ctx, copies, files, secret);
  if ('check' in req.query) return void res.status(204).end();
  // use the link only now, because until here the client can follow a redirect, or try again
  if (!(await useLink(ctx, secret))) throw unusableLink();
  await sendArchive(ctx, copies, { files, link }, res);
}

/**
 * Checks that this gateway can read the files: one file of each disk, or all files if only those that every user of the
 * host may read are served. A file that becomes unreadable later breaks the connection.
 * @throws HttpError, which redirects to another gateway if only that gateway's host mounts the disks
 */
async function checkReadable(
  ctx: Context,
  copies: Copies,
  files: readonly DownloadableFile[],
  secret: string,
): Promise<void> {
  const isPublic = ctx.config.transfer.webdav === 'public';
  const disks = new Map(files.map((file) => [file.diskId, file]));
  for (const file of isPublic ? files : disks.values()) {
    const opened = await copies.open(file, { isPublic });
    if (!('closed' in opened)) opened.close();
    else if (opened.closed === 'absent') throw await redirect(ctx, [...disks.keys()], secret);
    else throw await explainClosed(ctx, file, opened);
  }
}

async function redirect(ctx: Context, diskIds: readonly number[], secret: string): Promise<HttpError> {
  const hosts = await Promise.all(diskIds.map((id) => findHostsOf(ctx, id)));
  const ofAll = (hosts[0] ?? []).filter((host) => host !== hostname() && hosts.every((list) => list.includes(host)));
  const url = ofAll.flatMap((host) => ctx.config.transfer.gateways.get(host) ?? [])[0];
  if (url !== undefined)
    return new HttpError(307, 'another gateway serves these files', { Location: url + pathOfLink(secret) });
  return new HttpError(503, 'no gateway can read the disks of all these files: download fewer files at once', {
    'Retry-After': '30',
  });
}

async function sendArchive(
  ctx: Context,
  copies: Copies,
  { files, link }: { files: readonly DownloadableFile[]; link: DownloadLink },
  res: Response,
): Promise<void> {
  const names = namesInArchive(files.map(({ logicalPath }) => logicalPath));
  const zip = new ZipFile();
  const output = zip.outputStream as Readable;
  let reading: Readable | undefined;
  zip.on('error', (error) => output.destroy(error));
  for (const [index, file] of files.entries()) {
    const how = { size: Number(file.size), mtime: mtimeOf(file), mode: 0o100644, compress: false };
    zip.addReadStreamLazy(names[index] as string, how, (add) => {
      reading = Readable.from(readCopy(ctx, copies, file), { objectMode: false, highWaterMark: CHUNK });
      reading.once('error', (error) => output.destroy(error));
      add(null, reading);
    });
  }
  zip.end(
    { forceZip64Format: needsZip64(names), comment: '' },
    (size = -1) => void res.setHeader('Content-Length', size),
  );
  res.status(200).set({
    'Content-Type': 'application/zip',
    'Content-Disposition': `attachment; filename="request-${link.requestId}.zip"`,
    'Cache-Control': 'no-store',
  });
  try {
    await pipeline(output, res);
  } catch (error) {
    // never end the response normally, because a client must notice that the archive is incomplete
    res.destroy();
    if (!isDisconnect(error)) logFailure(ctx.log, error, 'cannot send an archive', { request: link.requestId });
  } finally {
    reading?.destroy();
  }
}

const isDisconnect = (error: unknown) =>
  error instanceof Error && 'code' in error && error.code === 'ERR_STREAM_PREMATURE_CLOSE';

/** Size in bytes of the buffers into which a file is read. A few of them are in memory for each archive. */
const CHUNK = 256 * 1024;

/** Yields the bytes of a copy. @throws HttpError if the copy cannot be read, or has changed */
async function* readCopy(ctx: Context, copies: Copies, file: DownloadableFile): AsyncGenerator<Buffer> {
  const opened = await copies.open(file, { isPublic: ctx.config.transfer.webdav === 'public' });
  if ('closed' in opened) throw await explainClosed(ctx, file, opened);
  try {
    const size = Number(file.size);
    for (let position = 0; position < size; ) {
      const buffer = Buffer.allocUnsafeSlow(Math.min(CHUNK, size - position));
      const count = await opened.read(buffer, position);
      if (count === 0) throw new HttpError(415, 'the copy shrank while it was being read');
      position += count;
      // check for changes before sending the last bytes, because a complete archive must be correct
      if (position === size && !(await opened.isUnchanged()))
        throw new HttpError(415, 'the copy was changed while it was being read');
      yield buffer.subarray(0, count);
    }
  } finally {
    opened.close();
  }
}

/** Earliest and latest time that an archive can contain. */
const [FIRST_MS, LAST_MS] = [Date.UTC(1980, 0, 2), Date.UTC(2107, 11, 30)];

const mtimeOf = ({ mtimeNs }: DownloadableFile): Date =>
  new Date(Math.min(Math.max(Number((mtimeNs ?? 0n) / 1_000_000n), FIRST_MS), LAST_MS));

/**
 * Returns whether the archive's directory needs the Zip64 format. yazl predicts the length of a longer directory as if
 * it had this format, but writes the format only if the directory exceeds 4 GB (version 3.3.1).
 */
const needsZip64 = (names: readonly string[]): boolean =>
  names.reduce((sum, name) => sum + Buffer.byteLength(name) + MAX_RECORD, 0) >= 0xffff;

/** Size in bytes of a file's record in the archive's directory, without the file's name. */
const MAX_RECORD = 128;

/**
 * Returns the names of files in an archive: the paths relative to their common directory. Encodes the characters that
 * programs for Windows understand as separators, because such a name could lead out of the directory.
 */
export function namesInArchive(paths: readonly string[]): string[] {
  const [first = '', ...rest] = paths.map((path) => path.slice(0, path.lastIndexOf('/') + 1));
  let common = first;
  for (const directory of rest)
    while (!directory.startsWith(common)) common = common.slice(0, common.lastIndexOf('/', common.length - 2) + 1);
  const names = paths.map((path) =>
    path
      .slice(common.length)
      .replaceAll('\\', '%5C')
      .replace(/^([a-z]):/i, '$1%3A'),
  );
  if (new Set(names).size < names.length)
    throw new HttpError(409, 'two of the files have the same name in an archive: download them one by one');
  return names;
}
