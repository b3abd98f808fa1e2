/**
 * Icons of the dashboard, copied from Lucide 1.48.0 (public/lucide-license.txt). The package has 1,700 icons in 33 MB.
 * To add an icon, copy the paths of its SVG file from https://lucide.dev, and write its other shapes as paths.
 */
import type { JSX, SVGAttributes } from 'preact';

export interface IconProps extends Omit<SVGAttributes<SVGSVGElement>, 'icon' | 'ref'> {
  /** Width and height in pixels. */
  size: number;
}

export type IconType = (props: IconProps) => JSX.Element;

function createIcon(...paths: string[]): IconType {
  return ({ size, ...attributes }) => (
    <svg
      width={size}
      height={size}
      viewBox="0 0 24 24"
      fill="none"
      stroke="currentColor"
      stroke-width="2"
      stroke-linecap="round"
      stroke-linejoin="round"
      aria-hidden="true"
      {...attributes}
    >
      {paths.map((d) => (
        <path key={d} d={d} />
      ))}
    </svg>
  );
}

export const ArrowDown = createIcon('M12 5v14', 'm19 12-7 7-7-7');
export const ArrowRight = createIcon('M5 12h14', 'm12 5 7 7-7 7');
export const ArrowUp = createIcon('m5 12 7-7 7 7', 'M12 19V5');
export const CalendarClock = createIcon(
  'M16 14v2.2l1.6 1',
  'M16 2v3',
  'M21 7.338V5a2 2 0 00-2-2H5a2 2 0 00-2 2v14a2 2 0 002 2h2.338',
  'M3 9h5.859',
  'M8 2v3',
  'M10 16a6 6 0 1 0 12 0a6 6 0 1 0 -12 0',
);
export const CalendarPlus = createIcon(
  'M16 18h6',
  'M16 2v3',
  'M19 15v6',
  'M21 11.5V5a2 2 0 00-2-2H5a2 2 0 00-2 2v14a2 2 0 002 2h8.3',
  'M3 9h18',
  'M8 2v3',
);
export const CassetteTape = createIcon(
  'M4 4h16a2 2 0 0 1 2 2v12a2 2 0 0 1 -2 2h-16a2 2 0 0 1 -2 -2v-12a2 2 0 0 1 2 -2z',
  'M6 10a2 2 0 1 0 4 0a2 2 0 1 0 -4 0',
  'M8 12h8',
  'M14 10a2 2 0 1 0 4 0a2 2 0 1 0 -4 0',
  'm6 20 .7-2.9A1.4 1.4 0 0 1 8.1 16h7.8a1.4 1.4 0 0 1 1.4 1l.7 3',
);
export const ChartLine = createIcon('M3 3v16a2 2 0 0 0 2 2h16', 'm19 9-5 5-4-4-3 3');
export const Check = createIcon('M20 6 9 17l-5-5');
export const ChevronDown = createIcon('m6 9 6 6 6-6');
export const ChevronRight = createIcon('m9 18 6-6-6-6');
export const Circle = createIcon('M2 12a10 10 0 1 0 20 0a10 10 0 1 0 -20 0');
export const CircleCheck = createIcon('M2 12a10 10 0 1 0 20 0a10 10 0 1 0 -20 0', 'm16 9-5.5 5.5L8 12');
export const CircleDashed = createIcon(
  'M10.1 2.182a10 10 0 0 1 3.8 0',
  'M13.9 21.818a10 10 0 0 1-3.8 0',
  'M17.609 3.721a10 10 0 0 1 2.69 2.7',
  'M2.182 13.9a10 10 0 0 1 0-3.8',
  'M20.279 17.609a10 10 0 0 1-2.7 2.69',
  'M21.818 10.1a10 10 0 0 1 0 3.8',
  'M3.721 6.391a10 10 0 0 1 2.7-2.69',
  'M6.391 20.279a10 10 0 0 1-2.69-2.7',
);
export const CircleHelp = createIcon(
  'M2 12a10 10 0 1 0 20 0a10 10 0 1 0 -20 0',
  'M9.09 9a3 3 0 0 1 5.83 1c0 2-3 3-3 3',
  'M12 17h.01',
);
export const CirclePlay = createIcon(
  'M9 9.003a1 1 0 0 1 1.517-.859l4.997 2.997a1 1 0 0 1 0 1.718l-4.997 2.997A1 1 0 0 1 9 14.996z',
  'M2 12a10 10 0 1 0 20 0a10 10 0 1 0 -20 0',
);
export const CircleSlash = createIcon('M2 12a10 10 0 1 0 20 0a10 10 0 1 0 -20 0', 'M9 15L15 9');
export const CircleUser = createIcon(
  'M2 12a10 10 0 1 0 20 0a10 10 0 1 0 -20 0',
  'M9 10a3 3 0 1 0 6 0a3 3 0 1 0 -6 0',
  'M7 20.662V19a2 2 0 0 1 2-2h6a2 2 0 0 1 2 2v1.662',
);
export const CircleX = createIcon('M2 12a10 10 0 1 0 20 0a10 10 0 1 0 -20 0', 'm15 9-6 6', 'm9 9 6 6');
export const ClipboardPaste = createIcon(
  'M11 14h10',
  'M16 4h2a2 2 0 0 1 2 2v1.344',
  'm17 18 4-4-4-4',
  'M8 4H6a2 2 0 0 0-2 2v14a2 2 0 0 0 2 2h12a2 2 0 0 0 1.793-1.113',
  'M9 2h6a1 1 0 0 1 1 1v2a1 1 0 0 1 -1 1h-6a1 1 0 0 1 -1 -1v-2a1 1 0 0 1 1 -1z',
);
export const Clock = createIcon('M2 12a10 10 0 1 0 20 0a10 10 0 1 0 -20 0', 'M12 6v6l4 2');
export const Cog = createIcon(
  'M11 10.27 7 3.34',
  'm11 13.73-4 6.93',
  'M12 22v-2',
  'M12 2v2',
  'M14 12h8',
  'm17 20.66-1-1.73',
  'm17 3.34-1 1.73',
  'M2 12h2',
  'm20.66 17-1.73-1',
  'm20.66 7-1.73 1',
  'm3.34 17 1.73-1',
  'm3.34 7 1.73 1',
  'M10 12a2 2 0 1 0 4 0a2 2 0 1 0 -4 0',
  'M4 12a8 8 0 1 0 16 0a8 8 0 1 0 -16 0',
);
export const Compass = createIcon(
  'M2 12a10 10 0 1 0 20 0a10 10 0 1 0 -20 0',
  'm16.24 7.76-1.804 5.411a2 2 0 0 1-1.265 1.265L7.76 16.24l1.804-5.411a2 2 0 0 1 1.265-1.265z',
);
export const Copy = createIcon(
  'M10 8h10a2 2 0 0 1 2 2v10a2 2 0 0 1 -2 2h-10a2 2 0 0 1 -2 -2v-10a2 2 0 0 1 2 -2z',
  'M4 16c-1.1 0-2-.9-2-2V4c0-1.1.9-2 2-2h10c1.1 0 2 .9 2 2',
);
export const Disc = createIcon('M2 12a10 10 0 1 0 20 0a10 10 0 1 0 -20 0', 'M10 12a2 2 0 1 0 4 0a2 2 0 1 0 -4 0');
export const Disc3 = createIcon(
  'M2 12a10 10 0 1 0 20 0a10 10 0 1 0 -20 0',
  'M6 12c0-1.7.7-3.2 1.8-4.2',
  'M10 12a2 2 0 1 0 4 0a2 2 0 1 0 -4 0',
  'M18 12c0 1.7-.7 3.2-1.8 4.2',
);
export const Download = createIcon('M12 15V3', 'M21 15v4a2 2 0 0 1-2 2H5a2 2 0 0 1-2-2v-4', 'm7 10 5 5 5-5');
export const Ellipsis = createIcon(
  'M11 12a1 1 0 1 0 2 0a1 1 0 1 0 -2 0',
  'M18 12a1 1 0 1 0 2 0a1 1 0 1 0 -2 0',
  'M4 12a1 1 0 1 0 2 0a1 1 0 1 0 -2 0',
);
export const File = createIcon(
  'M6 22a2 2 0 0 1-2-2V4a2 2 0 0 1 2-2h8a2.4 2.4 0 0 1 1.704.706l3.588 3.588A2.4 2.4 0 0 1 20 8v12a2 2 0 0 1-2 2z',
  'M14 2v5a1 1 0 0 0 1 1h5',
);
export const FileDown = createIcon(
  'M6 22a2 2 0 0 1-2-2V4a2 2 0 0 1 2-2h8a2.4 2.4 0 0 1 1.704.706l3.588 3.588A2.4 2.4 0 0 1 20 8v12a2 2 0 0 1-2 2z',
  'M14 2v5a1 1 0 0 0 1 1h5',
  'M12 18v-6',
  'm9 15 3 3 3-3',
);
export const FileSearch = createIcon(
  'M6 22a2 2 0 0 1-2-2V4a2 2 0 0 1 2-2h8a2.4 2.4 0 0 1 1.704.706l3.588 3.588A2.4 2.4 0 0 1 20 8v12a2 2 0 0 1-2 2z',
  'M14 2v5a1 1 0 0 0 1 1h5',
  'M9 14.5a2.5 2.5 0 1 0 5 0a2.5 2.5 0 1 0 -5 0',
  'M13.3 16.3 15 18',
);
export const FileX = createIcon(
  'M6 22a2 2 0 0 1-2-2V4a2 2 0 0 1 2-2h8a2.4 2.4 0 0 1 1.704.706l3.588 3.588A2.4 2.4 0 0 1 20 8v12a2 2 0 0 1-2 2z',
  'M14 2v5a1 1 0 0 0 1 1h5',
  'm14.5 12.5-5 5',
  'm9.5 12.5 5 5',
);
export const Files = createIcon(
  'M15 2h-4a2 2 0 0 0-2 2v11a2 2 0 0 0 2 2h8a2 2 0 0 0 2-2V8',
  'M16.706 2.706A2.4 2.4 0 0 0 15 2v5a1 1 0 0 0 1 1h5a2.4 2.4 0 0 0-.706-1.706z',
  'M5 7a2 2 0 0 0-2 2v11a2 2 0 0 0 2 2h8a2 2 0 0 0 1.732-1',
);
export const Flag = createIcon(
  'M4 22V4a1 1 0 0 1 .4-.8A6 6 0 0 1 8 2c3 0 5 2 7.333 2q2 0 3.067-.8A1 1 0 0 1 20 4v10a1 1 0 0 1-.4.8A6 6 0 0 1 16 16c-3 0-5-2-8-2a6 6 0 0 0-4 1.528',
);
export const FlaskConical = createIcon(
  'M14 2v6a2 2 0 0 0 .245.96l5.51 10.08A2 2 0 0 1 18 22H6a2 2 0 0 1-1.755-2.96l5.51-10.08A2 2 0 0 0 10 8V2',
  'M6.453 15h11.094',
  'M8.5 2h7',
);
export const Folder = createIcon(
  'M20 20a2 2 0 0 0 2-2V8a2 2 0 0 0-2-2h-7.9a2 2 0 0 1-1.69-.9L9.6 3.9A2 2 0 0 0 7.93 3H4a2 2 0 0 0-2 2v13a2 2 0 0 0 2 2Z',
);
export const FolderDown = createIcon(
  'M20 20a2 2 0 0 0 2-2V8a2 2 0 0 0-2-2h-7.9a2 2 0 0 1-1.69-.9L9.6 3.9A2 2 0 0 0 7.93 3H4a2 2 0 0 0-2 2v13a2 2 0 0 0 2 2Z',
  'M12 10v6',
  'm15 13-3 3-3-3',
);
export const FolderOpen = createIcon(
  'm6 14 1.5-2.9A2 2 0 0 1 9.24 10H20a2 2 0 0 1 1.94 2.5l-1.54 6a2 2 0 0 1-1.95 1.5H4a2 2 0 0 1-2-2V5a2 2 0 0 1 2-2h3.9a2 2 0 0 1 1.69.9l.81 1.2a2 2 0 0 0 1.67.9H18a2 2 0 0 1 2 2v2',
);
export const FolderPlus = createIcon(
  'M12 10v6',
  'M9 13h6',
  'M20 20a2 2 0 0 0 2-2V8a2 2 0 0 0-2-2h-7.9a2 2 0 0 1-1.69-.9L9.6 3.9A2 2 0 0 0 7.93 3H4a2 2 0 0 0-2 2v13a2 2 0 0 0 2 2Z',
);
export const HardDrive = createIcon(
  'M10 16h.01',
  'M2.212 11.577a2 2 0 0 0-.212.896V18a2 2 0 0 0 2 2h16a2 2 0 0 0 2-2v-5.527a2 2 0 0 0-.212-.896L18.55 5.11A2 2 0 0 0 16.76 4H7.24a2 2 0 0 0-1.79 1.11z',
  'M21.946 12.013H2.054',
  'M6 16h.01',
);
export const Inbox = createIcon(
  'M22 12 16 12 14 15 10 15 8 12 2 12',
  'M5.45 5.11 2 12v6a2 2 0 0 0 2 2h16a2 2 0 0 0 2-2v-6l-3.45-6.89A2 2 0 0 0 16.76 4H7.24a2 2 0 0 0-1.79 1.11z',
);
export const LayoutDashboard = createIcon(
  'M4 3h5a1 1 0 0 1 1 1v7a1 1 0 0 1 -1 1h-5a1 1 0 0 1 -1 -1v-7a1 1 0 0 1 1 -1z',
  'M15 3h5a1 1 0 0 1 1 1v3a1 1 0 0 1 -1 1h-5a1 1 0 0 1 -1 -1v-3a1 1 0 0 1 1 -1z',
  'M15 12h5a1 1 0 0 1 1 1v7a1 1 0 0 1 -1 1h-5a1 1 0 0 1 -1 -1v-7a1 1 0 0 1 1 -1z',
  'M4 16h5a1 1 0 0 1 1 1v3a1 1 0 0 1 -1 1h-5a1 1 0 0 1 -1 -1v-3a1 1 0 0 1 1 -1z',
);
export const Library = createIcon('m16 6 4 14', 'M12 6v14', 'M8 8v12', 'M4 4v16');
export const Link2 = createIcon('M9 17H7A5 5 0 0 1 7 7h2', 'M15 7h2a5 5 0 1 1 0 10h-2', 'M8 12L16 12');
export const ListEnd = createIcon('M16 5H3', 'M16 12H3', 'M9 19H3', 'm16 16-3 3 3 3', 'M21 5v12a2 2 0 0 1-2 2h-6');
export const ListFilter = createIcon('M2 5h20', 'M6 12h12', 'M9 19h6');
export const LoaderCircle = createIcon('M21 12a9 9 0 1 1-6.219-8.56');
export const LogIn = createIcon('m10 17 5-5-5-5', 'M15 12H3', 'M15 3h4a2 2 0 0 1 2 2v14a2 2 0 0 1-2 2h-4');
export const LogOut = createIcon('m16 17 5-5-5-5', 'M21 12H9', 'M9 21H5a2 2 0 0 1-2-2V5a2 2 0 0 1 2-2h4');
export const Monitor = createIcon(
  'M4 3h16a2 2 0 0 1 2 2v10a2 2 0 0 1 -2 2h-16a2 2 0 0 1 -2 -2v-10a2 2 0 0 1 2 -2z',
  'M8 21L16 21',
  'M12 17L12 21',
);
export const Moon = createIcon(
  'M20.985 12.486a9 9 0 1 1-9.473-9.472c.405-.022.617.46.402.803a6 6 0 0 0 8.268 8.268c.344-.215.825-.004.803.401',
);
export const OctagonPause = createIcon(
  'M10 15V9',
  'M14 15V9',
  'M2.586 16.726A2 2 0 0 1 2 15.312V8.688a2 2 0 0 1 .586-1.414l4.688-4.688A2 2 0 0 1 8.688 2h6.624a2 2 0 0 1 1.414.586l4.688 4.688A2 2 0 0 1 22 8.688v6.624a2 2 0 0 1-.586 1.414l-4.688 4.688a2 2 0 0 1-1.414.586H8.688a2 2 0 0 1-1.414-.586z',
);
export const PieChart = createIcon(
  'M21 12c.552 0 1.005-.449.95-.998a10 10 0 0 0-8.953-8.951c-.55-.055-.998.398-.998.95v8a1 1 0 0 0 1 1z',
  'M21.21 15.89A10 10 0 1 1 8 2.83',
);
export const Plus = createIcon('M5 12h14', 'M12 5v14');
export const RefreshCw = createIcon(
  'M3 12a9 9 0 0 1 9-9 9.75 9.75 0 0 1 6.74 2.74L21 8',
  'M21 3v5h-5',
  'M21 12a9 9 0 0 1-9 9 9.75 9.75 0 0 1-6.74-2.74L3 16',
  'M8 16H3v5',
);
export const RotateCcw = createIcon('M3 12a9 9 0 1 0 9-9 9.75 9.75 0 0 0-6.74 2.74L3 8', 'M3 3v5h5');
export const RotateCw = createIcon('M21 12a9 9 0 1 1-9-9c2.52 0 4.93 1 6.74 2.74L21 8', 'M21 3v5h-5');
export const Save = createIcon(
  'M15.2 3a2 2 0 0 1 1.4.6l3.8 3.8a2 2 0 0 1 .6 1.4V19a2 2 0 0 1-2 2H5a2 2 0 0 1-2-2V5a2 2 0 0 1 2-2z',
  'M17 21v-7a1 1 0 0 0-1-1H8a1 1 0 0 0-1 1v7',
  'M7 3v4a1 1 0 0 0 1 1h7',
);
export const ScrollText = createIcon(
  'M15 12h-5',
  'M15 8h-5',
  'M19 17V5a2 2 0 0 0-2-2H4',
  'M8 21h12a2 2 0 0 0 2-2v-1a1 1 0 0 0-1-1H11a1 1 0 0 0-1 1v1a2 2 0 1 1-4 0V5a2 2 0 1 0-4 0v2a1 1 0 0 0 1 1h3',
);
export const Search = createIcon('m21 21-4.34-4.34', 'M3 11a8 8 0 1 0 16 0a8 8 0 1 0 -16 0');
export const SearchX = createIcon(
  'm13.5 8.5-5 5',
  'm8.5 8.5 5 5',
  'M3 11a8 8 0 1 0 16 0a8 8 0 1 0 -16 0',
  'm21 21-4.3-4.3',
);
export const Sun = createIcon(
  'M8 12a4 4 0 1 0 8 0a4 4 0 1 0 -8 0',
  'M12 2v2',
  'M12 20v2',
  'm4.93 4.93 1.41 1.41',
  'm17.66 17.66 1.41 1.41',
  'M2 12h2',
  'M20 12h2',
  'm6.34 17.66-1.41 1.41',
  'm19.07 4.93-1.41 1.41',
);
export const Timer = createIcon('M10 2L14 2', 'M12 14L15 11', 'M4 14a8 8 0 1 0 16 0a8 8 0 1 0 -16 0');
export const TriangleAlert = createIcon(
  'm21.73 18-8-14a2 2 0 0 0-3.48 0l-8 14A2 2 0 0 0 4 21h16a2 2 0 0 0 1.73-3',
  'M12 9v4',
  'M12 17h.01',
);
export const Undo2 = createIcon('M9 14 4 9l5-5', 'M4 9h10.5a5.5 5.5 0 0 1 5.5 5.5a5.5 5.5 0 0 1-5.5 5.5H11');
export const Users = createIcon(
  'M16 21v-2a4 4 0 0 0-4-4H6a4 4 0 0 0-4 4v2',
  'M16 3.128a4 4 0 0 1 0 7.744',
  'M22 21v-2a4 4 0 0 0-3-3.87',
  'M5 7a4 4 0 1 0 8 0a4 4 0 1 0 -8 0',
);
export const X = createIcon('M18 6 6 18', 'm6 6 12 12');
export const XCircle = createIcon('M2 12a10 10 0 1 0 20 0a10 10 0 1 0 -20 0', 'm15 9-6 6', 'm9 9 6 6');
