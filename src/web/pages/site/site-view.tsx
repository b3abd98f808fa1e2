/** The views of the site, which are one part of the dashboard's script. */
import type { JSX } from 'preact';
import { AuditPage } from './audit';
import { CurvesPage } from './curves';
import { FailuresPage } from './failures';
import { OverviewPage } from './overview';
import { SuspensionsPage, UsersPage } from './people';
import { PlanPage } from './plan';
import { ProcessesPage } from './processes';
import { DisksPage, LibrariesPage, VolumesPage } from './storage';
import { VolumePage } from './volume';
import { WhatIfPage } from './what-if';
import './site.css';

const pages: Readonly<Record<string, (rest: readonly string[]) => JSX.Element>> = {
  site: () => <OverviewPage />,
  plan: () => <PlanPage />,
  'what-if': () => <WhatIfPage />,
  curves: () => <CurvesPage />,
  volumes: ([name]) => (name === undefined ? <VolumesPage /> : <VolumePage key={name} name={name} />),
  disks: () => <DisksPage />,
  libraries: () => <LibrariesPage />,
  suspensions: () => <SuspensionsPage />,
  users: () => <UsersPage />,
  failures: () => <FailuresPage />,
  processes: () => <ProcessesPage />,
  audit: () => <AuditPage />,
};

export function SiteView({ name, rest }: { name: string; rest: readonly string[] }) {
  return pages[name]?.(rest) ?? null;
}
