/** Names of partial files. They tell the recall that writes, so that whoever finds one knows whether it still runs. */

/** Whose a partial file is. */
export interface PartialOwner {
  fileId: bigint;
  driveId: number;
  /** Of the drive, when the recall began. */
  epoch: bigint;
}

/** The name under which a recall writes; it fits any file system, however long the file's own name is. */
export function partialName(owner: PartialOwner): string {
  return `.tapegate-${owner.fileId}-${owner.driveId}-${owner.epoch}.part`;
}

/** The recall that a partial file was written by; undefined for any other name. */
export function parsePartialName(name: string): PartialOwner | undefined {
  const [, fileId, driveId, epoch] = /^\.tapegate-(\d{1,18})-(\d{1,9})-(\d{1,18})\.part$/.exec(name) ?? [];
  return fileId && driveId && epoch
    ? { fileId: BigInt(fileId), driveId: Number(driveId), epoch: BigInt(epoch) }
    : undefined;
}
