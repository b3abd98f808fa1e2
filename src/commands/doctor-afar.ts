/** The doctor by a gateway, which looks at rows alone, and says which restore disks nobody has looked at. */
import type { Report } from '../engine/doctor/doctor.js';
import type { Finding } from '../operations/doctor/findings.js';
import { plural } from '../plural.js';
import { ask, askPages, type Page } from './client.js';
import { noteLine } from './output.js';
import { changeAfar } from './where.js';

type RowFinding = Finding & { needsHost: boolean };

/** @param tell is given each finding as soon as it is known */
export async function findAfar(
  url: string,
  { repair, tell }: { repair: boolean; tell: (finding: Finding) => void },
): Promise<Report> {
  let [found, repaired, left] = [0, 0, 0];
  for await (const findings of repair ? repairPages(url) : findPages(url)) {
    for (const { needsHost, ...finding } of findings) {
      found++;
      if (finding.isRepaired) repaired++;
      if (needsHost) left++;
      tell(finding);
    }
  }
  const { lookedAt, notLookedAt } = await askRows(url);
  if (left > 0)
    noteLine(
      `${plural(left, 'fault is mended', 'faults are mended')} by "tapegate doctor --repair" on a host that has the restore disks`,
    );
  if (notLookedAt !== null) noteLine(notLookedAt);
  return { lookedAt, found, repaired };
}

interface Rows {
  lookedAt: Record<string, number>;
  notLookedAt: string | null;
}

async function askRows(url: string): Promise<Rows> {
  const query = '{ doctorFindings(first: 0) { notLookedAt lookedAt { quotas requests holds recalls disks } } }';
  return (await ask<{ doctorFindings: Rows }>(url, query)).doctorFindings;
}

const FIELDS = 'kind thing expected found isRepaired needsHost';

const FIND = `query ($first: Int, $after: String) {
  doctorFindings(first: $first, after: $after) { edges { node { ${FIELDS} } } pageInfo { hasNextPage endCursor } }
}`;

async function* findPages(url: string): AsyncGenerator<RowFinding[]> {
  const pages = askPages(Number.POSITIVE_INFINITY, async (page) => {
    return (await ask<{ doctorFindings: Page<RowFinding> }>(url, FIND, page)).doctorFindings;
  });
  for await (const { edges } of pages) yield edges.map(({ node }) => node);
}

const REPAIR = [
  'repairFindings(first: Int, after: String)',
  `RepairedFindings { next findings { ${FIELDS} } }`,
] as const;

interface Repaired {
  findings: RowFinding[];
  next: string | null;
}

async function* repairPages(url: string): AsyncGenerator<RowFinding[]> {
  for (let after: string | null | undefined; after !== null; ) {
    const { findings, next }: Repaired = await changeAfar<Repaired>(url, REPAIR, { first: 500, after });
    yield findings;
    after = next;
  }
}
