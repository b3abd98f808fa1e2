/** The views of the dashboard. Views of the site are loaded when a viewer or an operator first opens one of them. */
import {
  CassetteTape,
  ChartLine,
  Cog,
  Disc,
  Files,
  FileX,
  HardDrive,
  Inbox,
  Library,
  type LucideIcon,
  OctagonPause,
  PieChart,
  ScrollText,
  Users,
} from 'lucide-preact';
import type { JSX } from 'preact';
import { FilesPage } from './pages/files/page';
import { QuotasPage } from './pages/quotas';
import { RequestPage } from './pages/request';
import { RequestsPage } from './pages/requests';
import { AuditPage } from './pages/site-audit';
import { CurvesPage, ProcessesPage } from './pages/site-curves';
import { FailuresPage, SuspensionsPage, UsersPage } from './pages/site-people';
import { PlanPage } from './pages/site-plan';
import { DisksPage, LibrariesPage, VolumesPage } from './pages/site-storage';

export interface View {
  name: string;
  title: string;
  icon: LucideIcon;
  /** @param rest the parts of the address after the name of the view */
  show(rest: string[]): JSX.Element;
  isForSite?: boolean;
  isForOperators?: boolean;
}

export const views: readonly View[] = [
  { name: 'files', title: 'Files', icon: Files, show: () => <FilesPage /> },
  {
    name: 'requests',
    title: 'Requests',
    icon: Inbox,
    show: ([id]) => (id === undefined ? <RequestsPage /> : <RequestPage key={id} id={id} />),
  },
  { name: 'quotas', title: 'Quotas', icon: PieChart, show: ([user]) => <QuotasPage user={user} /> },
  { name: 'plan', title: 'Drives and queue', icon: HardDrive, show: () => <PlanPage />, isForSite: true },
  { name: 'curves', title: 'Charts', icon: ChartLine, show: () => <CurvesPage />, isForSite: true },
  { name: 'volumes', title: 'Volumes', icon: CassetteTape, show: () => <VolumesPage />, isForSite: true },
  { name: 'disks', title: 'Disks', icon: Disc, show: () => <DisksPage />, isForSite: true },
  { name: 'libraries', title: 'Libraries', icon: Library, show: () => <LibrariesPage />, isForSite: true },
  {
    name: 'suspensions',
    title: 'Out of service',
    icon: OctagonPause,
    show: () => <SuspensionsPage />,
    isForSite: true,
  },
  { name: 'users', title: 'Users', icon: Users, show: () => <UsersPage />, isForSite: true },
  { name: 'failures', title: 'Failures', icon: FileX, show: () => <FailuresPage />, isForSite: true },
  { name: 'processes', title: 'Processes', icon: Cog, show: () => <ProcessesPage />, isForSite: true },
  {
    name: 'audit',
    title: 'Audit',
    icon: ScrollText,
    show: () => <AuditPage />,
    isForSite: true,
    isForOperators: true,
  },
];
