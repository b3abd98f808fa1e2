/**
 * Creates the directories that contain links. Each directory gets the original directory's mode and group, regardless
 * of the umask, so that file names in a private directory stay private.
 */
import { mkdir } from 'node:fs/promises';
import path from 'node:path';
import { codeOf } from '../../core/errors.js';
import { readDirectoryModes } from '../../domain/catalogue/directory-modes.js';
import type { Context } from '../../domain/context.js';
import { type DirectoryAttributes, wantedDirectory, withoutGroup } from '../attributes.js';
import { isUnfinished, NEW_MODE } from '../made-directories.js';
import { type Directory, withDirectory } from '../restore-area.js';

/**
 * Function that returns the mode and group that Tapegate sets on each directory in `dirs`, a list of absolute paths.
 */
export type AttributesOf = (dirs: readonly string[]) => Promise<DirectoryAttributes[]>;

/** Mode of TAPEGATE_LINK_ROOT and of the directories above it, if Tapegate has to create them. */
const ROOT_MODE = 0o755;

/** Returns a function that finds the mode and group to set on link directories and on TAPEGATE_LINK_ROOT. */
export function linkDirectoryAttributes(ctx: Context): AttributesOf {
  const root = (ctx.config.linkRoot ?? '/').replace(/\/+$/, '');
  return async (dirs) => {
    const paths = dirs.map((dir) => (dir.startsWith(`${root}/`) ? dir.slice(root.length) : undefined));
    const modes = await readDirectoryModes(
      ctx,
      paths.filter((logicalPath) => logicalPath !== undefined),
    );
    return paths.map((logicalPath) =>
      logicalPath === undefined ? { mode: ROOT_MODE, gid: null } : wantedDirectory(ctx.config, modes.get(logicalPath)),
    );
  };
}

/**
 * Creates a directory and sets its group and mode. Also sets the group and mode of a directory that a killed engine
 * left unfinished. Does not change any other existing directory.
 * @param parent absolute path of the parent directory, with links resolved
 * @throws TapeError POLICY if a link or file has replaced a directory; an error with code ENOENT if a directory was
 * just removed
 */
export async function createLinkDirectory(parent: string, name: string, wanted: DirectoryAttributes): Promise<void> {
  await withDirectory('/', parent, ({ fdPath }) => mkdir(path.join(fdPath, name), NEW_MODE)).catch((error: unknown) => {
    // ignore an existing directory, because another engine might have just created it
    if (codeOf(error) !== 'EEXIST') throw error;
  });
  await withDirectory('/', path.join(parent, name), (created) => finish(created, wanted));
}

/** Sets a new directory's group and mode through a descriptor, because a user might have replaced the directory. */
async function finish({ handle }: Directory, { mode, gid }: DirectoryAttributes): Promise<void> {
  const stats = await handle.stat();
  if (!isUnfinished(stats)) return;
  const setGroup = () =>
    handle.chown(-1, gid ?? -1).then(
      () => true,
      () => false,
    );
  const hasGroup = gid === null || stats.gid === gid || (await setGroup());
  await handle.chmod(hasGroup ? mode : withoutGroup(mode));
}
