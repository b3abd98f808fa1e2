/** `update`: a request is changed: how long it is kept, its name, its mail and its limits. */
import type { Command } from 'commander';
import { formatBytes } from '../bytes.js';
import { plural } from '../plural.js';
import { isBefore, parseTime } from '../time.js';
import { orNone, readId, readNumber, readRetention, readSize } from './arguments.js';
import { askChange, askNow, readUrl } from './client.js';
import { UsageError } from './failure.js';
import { jsonOption, type OutputOptions, printResult } from './output.js';
import { formatWholeTime } from './times.js';

export function registerUpdate(program: Command): void {
  program
    .command('update <id>')
    .option(...jsonOption)
    .option('--retention <date>', 'how long the files stay on disk: a UTC date, or from now 3d, 12h')
    .option('--label <text>')
    .option('--notify-first <address>', 'mail when the first file is on disk; own: to the address of the quota')
    .option('--notify-last <address>', 'mail when nothing is left to do; own: to the address of the quota')
    .option('--max-files <n>', 'what the request may hold at most')
    .option('--max-bytes <size>', 'the same in bytes, such as 10T')
    .addHelpText('after', '\nAn address or a limit that is "none" is taken away.')
    .action((id, options) => updateRequest(readUrl(), readId(id), options));
}

interface UpdateOptions extends OutputOptions {
  retention?: string;
  label?: string;
  notifyFirst?: string;
  notifyLast?: string;
  maxFiles?: string;
  maxBytes?: string;
}

interface UpdatedNode {
  requestId: number;
  label: string;
  state: string;
  filesTotal: number;
  bytesTotal: bigint;
  retention: string;
  notifyOnFirstFile: string | null;
  notifyOnLastFile: string | null;
  maxFiles: number | null;
  maxBytes: bigint | null;
}

const FIELDS =
  'requestId label state filesTotal bytesTotal retention notifyOnFirstFile notifyOnLastFile maxFiles maxBytes';

async function updateRequest(url: string, id: number, options: UpdateOptions): Promise<void> {
  const { retention, label } = options;
  const changes = {
    retention: retention === undefined ? undefined : await readLaterRetention(url, id, retention),
    label,
    notifyOnFirstFile: readAddress(options.notifyFirst),
    notifyOnLastFile: readAddress(options.notifyLast),
    maxFiles: orNone(options.maxFiles, (text) => readNumber('--max-files', text)),
    maxBytes: orNone(options.maxBytes, (text) => readSize('--max-bytes', text)),
  };
  if (Object.values(changes).every((change) => change === undefined)) throw new UsageError('give what is to change');
  const call = ['updateRequest(input: UpdateRequestInput!)', `Request { ${FIELDS} }`] as const;
  const request = await askChange<UpdatedNode>(url, call, { input: { id, ...changes } });
  const state = `request ${request.requestId} is ${request.state.toLowerCase()}`;
  const files = `${plural(request.filesTotal, 'file')}, ${formatBytes(request.bytesTotal)}`;
  printResult(request, `${state}: ${files}, kept until ${formatWholeTime(request.retention)}`, options);
}

/**
 * To the operation a retention that has passed is an end, for clients that know no other. Whoever types it means another
 * year, or `cancel`.
 */
async function readLaterRetention(url: string, id: number, text: string): Promise<string> {
  const now = await askNow(url);
  const retention = await readRetention('--retention', text, async () => now);
  if (isBefore(now, parseTime(retention) ?? retention)) return retention;
  throw new UsageError(
    `--retention must be in the future, not ${JSON.stringify(text)}: "tapegate cancel ${id}" ends a request`,
  );
}

/** An empty address means the quota's own. */
function readAddress(text: string | undefined): string | null | undefined {
  return orNone(text, (address) => (address === 'own' ? '' : address));
}
