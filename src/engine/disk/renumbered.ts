/**
 * Recognises the copies of a disk whose inodes have all changed: it was copied to another file system, or its file
 * system numbers inodes at each mount. Copies with the recorded size and mtime are compared with their checksums. A
 * killed run begins again; it compares no copy twice, since adopted ones are known by their inodes.
 */
import type { Context } from '../../context.js';
import type { NotedCopy } from '../../operations/disks/copies.js';
import {
  adoptRenumbered,
  type KnownMarker,
  type Renumbered,
  readCopiesOn,
  readMarkers,
  recordMarker,
} from '../../operations/disks/renumbered.js';
import { inodeOf, recogniseCopy } from './copy.js';
import type { FailingDisks } from './failures.js';
import { readMarkerId, rootOf } from './marker.js';
import { eachOf } from './removal.js';

const PAGE = 200;

/** Bytes that a run compares, about: with a run a minute, 100 MB/s at most. */
const RUN_BYTES = 6n * 10n ** 9n;

export class Renumbering {
  private readonly after = new Map<number, bigint>();
  /** Size of the copies that are compared in a run. */
  private bytes = 0n;

  async run(ctx: Context, stop: AbortSignal, disks: FailingDisks): Promise<void> {
    this.bytes = 0n;
    for (const disk of await readMarkers(ctx)) {
      const now = await rootOf(disk).then(readMarkerId, () => undefined); // absent: another run looks at it
      if (now === undefined || now === disk.markerId) continue;
      if (disk.markerId === null || (await this.adopt(ctx, disk, { stop, disks }))) {
        await recordMarker(ctx, disk, now);
        this.after.delete(disk.diskId);
      }
    }
  }

  /** @returns whether all copies of the disk were looked at */
  private async adopt(
    ctx: Context,
    { diskId, mountpoint }: KnownMarker,
    { stop, disks }: { stop: AbortSignal; disks: FailingDisks },
  ): Promise<boolean> {
    for (let adopted = 0; !stop.aborted && this.bytes < RUN_BYTES; ) {
      const after = this.after.get(diskId) ?? 0n;
      const copies = await readCopiesOn(ctx, { diskId, after, limit: PAGE });
      const looks = await eachOf(ctx, disks, { copies, what: 'compared' }, recogniseCopy);
      if (looks.length < copies.length) return false; // some cannot be read now
      adopted += await adoptRenumbered(
        ctx,
        looks.flatMap(({ copy, result }) => this.renumbered(copy, result)),
      );
      const isLast = copies.length < PAGE;
      if (!isLast) this.after.set(diskId, copies.at(-1)?.fileId ?? after);
      ctx.log.warn(
        { disk: mountpoint, adopted, bytes: this.bytes, isComplete: isLast },
        'the inodes of a restore disk have changed, and its copies are compared with their checksums',
      );
      if (isLast) return true;
    }
    return false;
  }

  private renumbered(copy: NotedCopy, found: Awaited<ReturnType<typeof recogniseCopy>>): Renumbered[] {
    if (typeof found === 'string' || inodeOf(found) === copy.ino) return [];
    this.bytes += copy.size;
    return [{ fileId: copy.fileId, version: copy.version, ino: inodeOf(found), ctimeNs: found.ctimeNs }];
  }
}
