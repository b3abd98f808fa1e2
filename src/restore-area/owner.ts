/**
 * The owner record of a restore disk or library. The record is a file with the identity of a database: only this
 * database's engines are allowed to change the disk or library. The record also contains a stamp, which the engines
 * replace every few seconds.
 */
import { randomUUID } from 'node:crypto';
import { link, open, rename, unlink } from 'node:fs/promises';
import { hostname } from 'node:os';
import path from 'node:path';
import { z } from 'zod';
import { codeOf, messageOf, TapeError } from '../core/errors.js';
import { ownerName } from '../tape/directory/index.js';
import { readText } from './text.js';

const ownerRecord = z.object({
  identity: z.uuid(),
  epoch: z.uuid(),
  number: z.int(),
  host: z.string(),
  at: z.string(),
});
export type OwnerRecord = z.infer<typeof ownerRecord>;

const WRONG = ['EACCES', 'EPERM', 'ELOOP', 'EISDIR'];

/** Error for an owner record that is damaged, or that cannot be read although its directory is readable. */
export class DamagedOwnerError extends TapeError {
  constructor(file: string, cause: unknown) {
    const problem = `the owner record ${file} is damaged or unreadable: ${messageOf(cause)}`;
    super('POLICY', `${problem}; if no other Tapegate uses the directory, remove the record`, { cause });
  }
}

/**
 * Reads the owner record. @returns undefined if the directory does not have a record @throws DamagedOwnerError @throws
 * TapeError if the record cannot be read now
 */
export async function readOwner(root: string): Promise<OwnerRecord | undefined> {
  const file = path.join(root, ownerName);
  try {
    return ownerRecord.parse(JSON.parse(await readText(file)));
  } catch (error) {
    const code = codeOf(error);
    if (code === 'ENOENT' || code === 'ENOTDIR') return undefined;
    if (code === undefined || WRONG.includes(code)) throw new DamagedOwnerError(file, error);
    throw new TapeError('TRANSIENT', `the owner record ${file} cannot be read: ${messageOf(error)}`, { cause: error });
  }
}

/**
 * Writes the owner record atomically. Does nothing if another Tapegate has taken the directory since the caller read
 * the record.
 * @param how.isFirst whether to write the record only if the directory does not have one
 * @param how.takes whether to replace even another owner's record
 * @returns whether the record was written
 */
export async function writeOwner(
  root: string,
  record: Omit<OwnerRecord, 'host'>,
  { isFirst = false, takes = false, sync = false } = {},
): Promise<boolean> {
  const [file, partial] = [path.join(root, ownerName), path.join(root, `${ownerName}-${randomUUID()}`)];
  const handle = await open(partial, 'wx', 0o644);
  try {
    await handle.writeFile(`${JSON.stringify({ ...record, host: hostname() } satisfies OwnerRecord)}\n`);
    if (sync) await handle.sync();
    // check the owner only now, because writing the temporary file can take long on a busy disk
    const isOwn = isFirst || takes || (await readOwner(root))?.identity === record.identity;
    if (isFirst) await link(partial, file);
    else if (isOwn) await rename(partial, file);
    if (isFirst || !isOwn) await unlink(partial);
    return isOwn;
  } catch (error) {
    await unlink(partial).catch(() => {}); // ignore the error, because the temporary file might no longer exist
    if (isFirst && codeOf(error) === 'EEXIST') return false;
    // without hard links, a rename might replace another owner's record, but two Tapegate installations hardly ever
    // mark a disk at the same time
    if (isFirst && NO_LINKS.includes(codeOf(error) ?? '')) return await writeOwner(root, record, { takes: true, sync });
    throw error;
  } finally {
    await handle.close();
  }
}

const NO_LINKS = ['EPERM', 'ENOSYS', 'ENOTSUP', 'EOPNOTSUPP', 'EMLINK'];

export async function removeOwner(root: string): Promise<void> {
  await unlink(path.join(root, ownerName)).catch((error: unknown) => {
    if (codeOf(error) !== 'ENOENT') throw error;
  });
}
