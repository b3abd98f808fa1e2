/** The views of the dashboard. Views of the site are loaded when a viewer or an operator first opens one of them. */

import type { JSX } from 'preact';
import { FilesPage } from './pages/files/page';
import { QuotasPage } from './pages/quotas/quotas';
import { RequestPage } from './pages/request/request';
import { RequestsPage } from './pages/requests/requests';
import { LazySiteView } from './pages/site/lazy-view';
import {
  CassetteTape,
  ChartLine,
  Cog,
  Disc,
  Files,
  FileX,
  FlaskConical,
  HardDrive,
  type IconType,
  Inbox,
  LayoutDashboard,
  Library,
  OctagonPause,
  PieChart,
  ScrollText,
  Users,
} from './parts/icons';

export interface View {
  name: string;
  title: string;
  icon: IconType;
  /** @param rest the parts of the address after the name of the view */
  show(rest: string[]): JSX.Element;
  isForSite?: boolean;
  isForOperators?: boolean;
}

/** Returns a view of the site, for viewers and operators. */
function showSite(name: string, title: string, icon: IconType): View {
  return { name, title, icon, show: (rest) => <LazySiteView name={name} rest={rest} />, isForSite: true };
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
  showSite('site', 'Overview', LayoutDashboard),
  showSite('plan', 'Drives and queue', HardDrive),
  showSite('what-if', 'What if …', FlaskConical),
  showSite('curves', 'Charts', ChartLine),
  showSite('volumes', 'Volumes', CassetteTape),
  showSite('disks', 'Disks', Disc),
  showSite('libraries', 'Libraries', Library),
  showSite('suspensions', 'Out of service', OctagonPause),
  showSite('users', 'Users', Users),
  showSite('failures', 'Failures', FileX),
  showSite('processes', 'Processes', Cog),
  { ...showSite('audit', 'Audit', ScrollText), isForOperators: true },
];
