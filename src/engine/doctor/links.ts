/** Links at archive paths are compared with what is noted of them. Those that are due are left to the engine, which has them in hand. */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Context } from '../../context.js';
import { messageOf } from '../../errors.js';
import { type Finding, PASSING_MS } from '../../operations/doctor/findings.js';
import { markLinks, type NotedLink, readChanges, readLinks } from '../../operations/links/links.js';
import { lookAtLink } from '../links/looks.js';
import { LinkKeeper } from '../links/pass.js';
import type { Examination } from './examination.js';

const PAGE = 500;

/** Links that cannot be made, then those that are not as they were made. */
export async function* examineLinks(ctx: Context, exam: Examination): AsyncGenerator<Finding> {
  for (let after = 0n; ; ) {
    const links = await readLinks(ctx, { after, limit: PAGE });
    exam.counts.links += links.length;
    const faults: LinkFault[] = [];
    for (const link of links) {
      const fault = await examineLink(link);
      if (fault) faults.push(fault);
    }
    const real = await keepNoted(ctx, faults);
    const mended = exam.repair && real.length > 0 ? await mend(ctx, real) : new Set<bigint>();
    for (const { link, kind, found } of real) {
      const isRepaired = mended.has(link.fileId);
      yield { kind, thing: link.at, expected: `a link to ${link.target}`, found, isRepaired };
    }
    if (links.length < PAGE) return;
    after = links.at(-1)?.fileId ?? after;
  }
}

interface LinkFault {
  link: NotedLink;
  kind: 'link-missing' | 'link-changed' | 'link-stuck';
  found: string;
}

async function examineLink(link: NotedLink): Promise<LinkFault | undefined> {
  try {
    const found = await lookAtLink(link.at);
    if (found?.target === link.target) return undefined;
    if (found) {
      const kind = link.problem === null ? 'link-changed' : 'link-stuck';
      return { link, kind, found: found.target === null ? 'no link' : `a link to ${found.target}` };
    }
    if (link.problem !== null) return { link, kind: 'link-stuck', found: link.problem };
    return { link, kind: 'link-missing', found: 'nothing' };
  } catch (error) {
    return { link, kind: 'link-stuck', found: messageOf(error) };
  }
}

/** What was marked, or settled, since it was looked at is no fault. */
async function keepNoted(ctx: Context, faults: readonly LinkFault[]): Promise<LinkFault[]> {
  const changes = await readChanges(
    ctx,
    faults.map(({ link }) => link.fileId),
  );
  return faults.filter(({ link }) => changes.get(link.fileId) === link.change);
}

/** @returns the ids of those that are as they are noted then */
async function mend(ctx: Context, faults: readonly LinkFault[]): Promise<Set<bigint>> {
  const ids = faults.map(({ link }) => link.fileId);
  await markLinks(ctx, ids);
  await new LinkKeeper(ctx).settleAll(new AbortController().signal);
  const mended = await findRight(faults);
  if (mended.size === ids.length) return mended;
  await sleep(PASSING_MS); // an engine has some of them in hand
  return await findRight(faults);
}

async function findRight(faults: readonly LinkFault[]): Promise<Set<bigint>> {
  const right = new Set<bigint>();
  for (const { link } of faults) {
    const found = await lookAtLink(link.at).catch(() => undefined);
    if (found?.target === link.target) right.add(link.fileId);
  }
  return right;
}
