/** What a `start` or `serve` prints when it is ready. */
import path from 'node:path';
import type { Config } from '../config.js';
import type { Demo } from '../demo.js';
import { defaultServerUrl } from '../environment.js';
import { printable, printText } from './output.js';

const OPEN_DOOR = '  access     open to whoever reaches it; AUTH=token closes the door, see src/access/README.md';
const NO_ENGINE =
  '  engine     none here; "tapegate work" runs one, on a host that has the tapes and the restore disks';

/** How a demo is tried is told until somebody has asked for files: the start that made it may have failed after that. */
export function announce(
  config: Config,
  url: string,
  { demo, hasEngine }: { demo: Demo | undefined; hasEngine: boolean },
): void {
  const dataDir = path.resolve(config.dataDir);
  const { auth } = config.access;
  const found = config.publicUrl ?? url; // by whoever is not on this host
  const server = found === defaultServerUrl ? '' : `TAPEGATE_URL=${found} `;
  const lines = [
    `Tapegate is ready at ${url}`,
    `  REST       ${found}/tape_control/api/v1/requests`,
    `  GraphQL    ${found}/graphql`,
    `  tapes      ${path.join(dataDir, 'library')}`,
    `  restored   ${path.join(dataDir, 'restore')}`,
    `  database   ${config.databaseUrl ? 'DATABASE_URL' : path.join(dataDir, 'postgres')}`,
    ...(hasEngine ? [] : [NO_ENGINE]),
    auth.has('open') ? OPEN_DOOR : `  access     ${[...auth].join(', ')} (AUTH)`,
    '',
  ];
  if (demo) {
    const what = demo === 'made' ? 'A demo archive was made' : 'There is a demo archive';
    lines.push(`${what}: 24 files on 3 volumes, users alice and bob. In another terminal, try:`);
    lines.push('', `  ${server}npx tapegate request --quota alice --pattern /demo/ocean/2024 --watch`, '');
  } else lines.push('In another terminal:', '', `  ${server}npx tapegate --help`, '');
  printText(`${lines.map(printable).join('\n')}\n`); // at once: whoever waits for it has all of it
}
