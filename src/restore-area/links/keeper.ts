/**
 * Creates and removes the links that the database lists as pending. Creates links to new copies immediately, without
 * waiting for the periodic job.
 */

import path from 'node:path';
import { messageOf, UnavailableError } from '../../core/errors.js';
import type { Context } from '../../domain/context.js';
import { listDisks } from '../../domain/disks/disks.js';
import {
  claimLinks,
  type DueLink,
  type Link,
  markLinks,
  readNoted,
  recordEarlyLinks,
  recordLinks,
  recordSettled,
  type SettledLink,
  setLinkRoot,
} from '../../domain/links/links.js';
import { waitInTime } from '../call-watch.js';
import { confirmOwned } from '../ownership.js';
import { type AttributesOf, linkDirectoryAttributes } from './directories.js';
import { makeLink, removeLink, syncLinkDirectory, tidyLinkDirectories } from './link.js';

/**
 * Maximum number of pending links that an engine claims at a time. Even if the file system is slow, the engine can
 * process this many links before its claim expires.
 */
const PAGE = 100;

/**
 * Time limit for `makeEarly`, in milliseconds. The periodic job creates the links that `makeEarly` does not create in
 * time.
 */
const EARLY_MS = 5000;

/** Records the value of TAPEGATE_LINK_ROOT in the database. All engines must have the same value. */
export async function beginLinks(ctx: Context): Promise<void> {
  const root = ctx.config.linkRoot;
  const changed = await setLinkRoot(ctx, root);
  if (!changed) return;
  const before = changed.before ?? 'none before';
  ctx.log.warn(
    { root: root ?? null, before },
    'TAPEGATE_LINK_ROOT has changed: the links to restored files are now in another directory',
  );
}

/**
 * Creates and removes links. A process must use only one instance: the instance stops making calls while one of its
 * calls hangs, so that hung calls do not block more threads.
 */
export class LinkKeeper {
  private readonly ctx: Context;
  private readonly attributesOf: AttributesOf;
  private hanging: Promise<unknown> | undefined;

  constructor(ctx: Context) {
    this.ctx = ctx;
    this.attributesOf = linkDirectoryAttributes(ctx);
  }

  /**
   * Creates and removes all pending links.
   * @throws Error if TAPEGATE_LINK_ROOT does not respond in time; later calls do nothing until the directory responds
   */
  async settleAll(stop: AbortSignal): Promise<void> {
    while (!stop.aborted && !this.hanging) {
      await confirmOwned(this.ctx);
      const due = await claimLinks(this.ctx, PAGE);
      if (due.length === 0) return;
      const isDone = await this.within(this.ctx.config.diskTimeout * 1000, this.settle(due));
      if (!isDone) throw new Error('the link directory (TAPEGATE_LINK_ROOT) did not respond in time');
    }
  }

  /**
   * Creates links to new copies. Logs an error instead of throwing it, because the periodic job tries again to create
   * the link.
   */
  async makeEarly(copies: readonly { fileId: bigint; diskId: number }[]): Promise<void> {
    if (this.ctx.config.linkRoot === undefined || copies.length === 0 || this.hanging) return;
    await this.within(EARLY_MS, this.makeNoted(copies)).catch((error: unknown) => {
      this.ctx.log.warn({ error: messageOf(error) }, 'cannot create links to restored files; retrying later');
    });
  }

  private async makeNoted(copies: readonly { fileId: bigint; diskId: number }[]): Promise<void> {
    const links = await recordEarlyLinks(this.ctx, copies);
    const mountpoints = (await listDisks(this.ctx)).map(({ mountpoint }) => mountpoint);
    const options = { mountpoints, attributesOf: this.attributesOf };
    for (const link of links) await makeLink(link, { ...link, ...options }).catch(() => {});
  }

  private async settle(due: readonly DueLink[]): Promise<void> {
    const mountpoints = (await listDisks(this.ctx)).map(({ mountpoint }) => mountpoint);
    const problems = new Map<bigint, string>();
    const trying = async (fileId: bigint, call: () => Promise<void>) => {
      await call().catch((error: unknown) => {
        if (error instanceof UnavailableError) throw error;
        problems.set(fileId, messageOf(error));
      });
    };
    const unwanted = due.flatMap(({ fileId, noted, wanted }) =>
      noted && !isSameLink(noted, wanted) ? [{ fileId, ...noted }] : [],
    );
    for (const { fileId, ...link } of unwanted) await trying(fileId, () => removeLink(link));
    await this.sync(unwanted, trying);
    const { linkRoot } = this.ctx.config;
    if (linkRoot !== undefined) {
      for (const { at } of unwanted) await this.tidy(linkRoot, at);
    }
    const wanted = due.flatMap((link) =>
      link.wanted && !problems.has(link.fileId) ? [{ ...link, ...link.wanted }] : [],
    );
    const changed = await recordLinks(
      this.ctx,
      wanted.filter((link) => !link.isThere || !isSameLink(link, link.noted)),
    );
    const made = wanted.filter((link) => changed.has(link.fileId) || (link.isThere && isSameLink(link, link.noted)));
    const options = { mountpoints, attributesOf: this.attributesOf };
    for (const { fileId, ...link } of made) await trying(fileId, () => makeLink(link, { fileId, ...options }));
    await this.sync(made, trying);
    const isMade = new Set(made.map(({ fileId }) => fileId));
    const settled = due.filter((link) => link.wanted === null || isMade.has(link.fileId) || problems.has(link.fileId));
    const noted = await recordSettled(
      this.ctx,
      settled.map((link) => toSettled(link, problems.get(link.fileId) ?? null)),
    );
    await this.undoLate(
      due.filter(({ fileId }) => !noted.has(fileId)),
      made,
    );
  }

  /**
   * Removes empty directories above a removed link. Logs an error instead of throwing it, because Tapegate can remove
   * the copy even if the link's directories remain.
   */
  private async tidy(linkRoot: string, at: string): Promise<void> {
    await tidyLinkDirectories(linkRoot, at, this.attributesOf).catch((error: unknown) => {
      this.ctx.log.warn({ error: messageOf(error), path: at }, 'cannot remove empty link directories');
    });
  }

  /**
   * Syncs the directories of changed links. The caller must do this before it records the changes in the database, so
   * that all recorded changes survive a crash.
   */
  private async sync(
    links: readonly (Link & Pick<DueLink, 'fileId'>)[],
    trying: (fileId: bigint, call: () => Promise<void>) => Promise<void>,
  ): Promise<void> {
    const directories = new Map<string, bigint[]>();
    for (const { fileId, at } of links) {
      directories.set(path.dirname(at), [...(directories.get(path.dirname(at)) ?? []), fileId]);
    }
    for (const [directory, fileIds] of directories) {
      let synced: Promise<void> | undefined;
      for (const fileId of fileIds) await trying(fileId, () => (synced ??= syncLinkDirectory(directory)));
    }
  }

  /**
   * Handles links that other engines recorded while this process was stalled. If this process created a link that
   * differs from the other engine's record, removes this link.
   */
  private async undoLate(late: readonly DueLink[], made: readonly (Link & Pick<DueLink, 'fileId'>)[]): Promise<void> {
    const ids = late.map(({ fileId }) => fileId);
    const noted = await readNoted(this.ctx, ids);
    for (const link of made) {
      if (ids.includes(link.fileId) && !isSameLink(link, noted.get(link.fileId) ?? null)) await removeLink(link);
    }
    await markLinks(this.ctx, ids);
  }

  private async within(ms: number, work: Promise<void>): Promise<boolean> {
    if (await waitInTime(ms, work)) return true;
    this.hanging = work
      .catch(() => {})
      .finally(() => {
        this.hanging = undefined;
      });
    return false;
  }
}

function toSettled({ fileId, change, wanted, isThere }: DueLink, problem: string | null): SettledLink {
  if (problem !== null) return { fileId, change, result: 'stuck', problem };
  if (wanted) return { fileId, change, result: 'right', problem };
  return { fileId, change, result: isThere ? 'gone' : 'forgotten', problem };
}

function isSameLink(link: Link, other: Link | null): boolean {
  return link.at === other?.at && link.target === other.target;
}
