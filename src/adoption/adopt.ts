/**
 * Adopts the data of a django-nla_control installation, and reports differences. A repeated adoption skips data that
 * has not changed in the source.
 */
import type { PoolClient } from 'pg';
import { messageOf, UnavailableError } from '../core/errors.js';
import type { AuditedAction } from '../domain/audit/audit.js';
import { auditedRun } from '../domain/audit/audited.js';
import type { Context } from '../domain/context.js';
import { ownershipOf } from '../restore-area/ownership.js';
import { addDisk, checkNewDisk } from '../restore-area/setup.js';
import { readSourceDisks, reportUnheld } from './adopted-copies.js';
import { adoptFiles, chooseSourceFiles } from './adopted-files.js';
import { adoptSourceCopies } from './link-copies.js';
import { adoptQuotas } from './quotas.js';
import { type Adopting, type Adoption, type Difference, nothingAdopted } from './report.js';
import { adoptRequests, adoptSentEmails, endGone } from './requests.js';
import { withLoadedSource } from './tables.js';

export interface AdoptOptions {
  isTrial: boolean;
  /** Directory in which the source system creates a link to each restored copy, at the file's path in the archive. */
  archiveRoot: string;
}

/**
 * Adopts the data of a source database.
 * @param source URL of the source's database
 * @param report receives each difference between the source and Tapegate
 * @throws SourceError
 */
export async function adopt(
  ctx: Context,
  source: string,
  options: AdoptOptions,
  report: (difference: Difference) => void,
): Promise<Adoption> {
  return await withLoadedSource(ctx, source, async (client) => {
    if (options.isTrial) return await adoptLoaded(ctx, client, options, report);
    await ownershipOf(ctx).require();
    const deed: AuditedAction = { operation: 'adopt', kind: 'NONE', object: '' };
    const work = () => adoptLoaded(ctx, client, options, report);
    return await auditedRun(ctx, deed, work, ({ bytes, ...counts }) => ({ ...counts, bytes: String(bytes) }));
  });
}

async function adoptLoaded(
  ctx: Context,
  client: PoolClient,
  { isTrial, archiveRoot }: AdoptOptions,
  report: (difference: Difference) => void,
): Promise<Adoption> {
  const counts = { ...nothingAdopted };
  const adopting: Adopting = {
    isTrial,
    counts,
    report: (difference) => {
      counts.differences++;
      report(difference);
    },
  };
  const refusedDisks = await adoptDisks(ctx, client, adopting);
  await adoptQuotas(ctx, client, adopting);
  await chooseSourceFiles(client, adopting);
  await adoptFiles(ctx, client, adopting);
  if (!isTrial) await adoptSentEmails(ctx, client);
  await adoptSourceCopies(ctx, client, { adopting, archiveRoot, refusedDisks });
  await adoptRequests(ctx, client, adopting);
  await endGone(ctx, client, adopting);
  if (!isTrial) await reportUnheld(ctx, adopting);
  return counts;
}

/** @returns the mount points of the disks that cannot be added */
async function adoptDisks(
  ctx: Context,
  client: PoolClient,
  { isTrial, report, counts }: Adopting,
): Promise<ReadonlySet<string>> {
  const refused = new Set<string>();
  for (const { mountpoint, allocated, id } of await readSourceDisks(client)) {
    if (id !== null) continue;
    const there = `a restore disk of ${allocated} bytes`;
    try {
      const size = BigInt(/^\d{1,19}$/.test(allocated ?? '') ? (allocated ?? '0') : '0');
      const problem = isTrial
        ? await checkNewDisk(ctx, mountpoint)
        : (await addDisk(ctx, { mountpoint, size })).problem;
      if (problem !== undefined) report({ kind: 'disk-unmarked', object: mountpoint, there, here: problem });
      counts.disks++;
    } catch (error) {
      if (error instanceof UnavailableError) throw error;
      refused.add(mountpoint);
      report({ kind: 'disk-refused', object: mountpoint, there, here: `none: ${messageOf(error)}` });
    }
  }
  return refused;
}
