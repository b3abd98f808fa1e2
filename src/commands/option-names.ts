/** Options for the fields of an input: what is refused names a field, and whoever typed the command knows its option. */

/** Of operations and of GraphQL. What is an argument of a command has its own name there, too. */
const optionNames: Readonly<Record<string, string>> = {
  depthBytes: '--depth-bytes',
  depthFiles: '--depth-files',
  drives: '--drives',
  email: '--email',
  files: '--file',
  kind: '--kind',
  label: '--label',
  maxBytes: '--max-bytes',
  maxFiles: '--max-files',
  medium: '--medium',
  notes: '--notes',
  operation: '--operation',
  notifyOnFirstFile: '--notify-first',
  notifyOnLastFile: '--notify-last',
  paths: '--file',
  pattern: '--pattern',
  quota: '--quota',
  reason: '--reason',
  retention: '--retention',
  size: '--size',
  since: '--since',
  until: '--until',
  weight: '--weight',
};

/**
 * A message that begins with the name of a field, with that of its option.
 * @param own options of one command only, by field
 */
export function nameOption(message: string, field: string, own: Readonly<Record<string, string>> = {}): string {
  const option = own[field] ?? optionNames[field];
  const begins = message.startsWith(`${field} `);
  return option !== undefined && begins ? `${option}${message.slice(field.length)}` : message;
}
