/**
 * The table of commands, in the order in which the help lists them, with each command's group and description. A
 * command's source file is loaded only if the command line names the command, because loading all files is slow.
 */
import type { Command } from 'commander';

/**
 * A command's description, in one line of at most 57 characters. `help` is an optional longer text for the command's
 * own help.
 */
type Description = string | { line: string; help: string };

export interface CommandFile {
  group: string;
  load(): Promise<{ register(program: Command): void }>;
  /** Descriptions of the commands in the source file, keyed by usage, such as `show [options] <id>`. */
  commands: Record<string, Description>;
}

/**
 * A program's commands, in the order in which the help lists them. `where` is the help's last line, which mentions
 * environment variables.
 */
export interface Commands {
  commands: readonly CommandFile[];
  where: string;
}

function inGroup<Name extends string>(
  group: string,
  files: Record<Name, [load: CommandFile['load'], commands: CommandFile['commands']]>,
): Record<Name, CommandFile> {
  const entries = Object.entries<[CommandFile['load'], CommandFile['commands']]>(files);
  return Object.fromEntries(entries.map(([name, [load, commands]]) => [name, { group, load, commands }])) as Record<
    Name,
    CommandFile
  >;
}

const slash = 'A path that ends in a slash selects the whole directory.';

export const commandFiles = {
  ...inGroup('Requests:', {
    request: [() => import('../cli/requests/request.js'), { 'request [options]': 'Request files by path or pattern' }],
    requests: [() => import('../cli/requests/requests.js'), { 'requests [options]': 'List requests' }],
    show: [
      () => import('../cli/requests/show.js'),
      { 'show [options] <id>': 'Show a request and its files that are not yet on disk' },
    ],
    watch: [
      () => import('../cli/requests/watch.js'),
      { 'watch [options] <id>': 'Show the progress of a request until it ends' },
    ],
    plan: [
      () => import('../cli/requests/plan.js'),
      { 'plan [options] [id]': 'Show planned recalls, or why a request is waiting' },
    ],
    requestChanges: [
      () => import('../cli/requests/request-changes.js'),
      {
        'update [options] <id>': {
          line: 'Change the retention, label or limits of a request',
          help: 'Change a request. Only the given options change. A longer retention makes an ended request active again.',
        },
        'cancel [options] <ids...>': 'End requests and release their files',
        'priority [options] <id> <n>': {
          line: 'Set the priority of a request',
          help: 'Set the priority of a request. Tapegate first recalls the files of requests with a higher priority. The default is 0.',
        },
        'release [options] <id>': 'Release some files in a request before the request ends',
        'retry [options] <id>': 'Retry the failed files in a request',
      },
    ],
  }),
  ...inGroup('Catalogue:', {
    ls: [
      () => import('../cli/catalogue/ls.js'),
      { 'ls [options] [match]': 'List tape files whose path contains <match>' },
    ],
    importFiles: [
      () => import('../cli/catalogue/import.js'),
      {
        'import [options] <file>': {
          line: 'Add or update files from a list (CSV, JSON Lines or another format)',
          help: 'Add files to the catalogue, or update existing files. The list of files is CSV, JSON Lines or a list from another system, uncompressed or compressed with gzip. Use - for standard input.',
        },
      },
    ],
    archive: [
      () => import('../cli/catalogue/archive.js'),
      { 'archive [options] <dir>': 'Write a directory tree to tape and register its files' },
    ],
    scan: [
      () => import('../cli/catalogue/scan.js'),
      { 'scan [options] <volume>': 'Register the files on an LTFS cartridge' },
    ],
    verify: [
      () => import('../cli/catalogue/verify.js'),
      { 'verify [options] [match]': 'List tape copies that could not be verified' },
    ],
    catalogueChanges: [
      () => import('../cli/catalogue/catalogue-changes.js'),
      {
        'withdraw [options] <path>': {
          line: 'Withdraw a file or directory from the catalogue',
          help: `Withdraw a file or directory from the catalogue: it can no longer be requested. ${slash}`,
        },
        'reinstate [options] <path>': {
          line: 'Restore a withdrawn file or directory to the catalogue',
          help: `Restore a withdrawn file or directory to the catalogue. ${slash}`,
        },
        'rename [options] <from> <to>': {
          line: 'Change the path of a file or directory',
          help: 'Change the path of a file, or of a directory if both paths end in a slash.',
        },
        'purge [options] <path>': {
          line: 'Remove a withdrawn file or directory for good',
          help: `Remove a withdrawn file or directory from the catalogue for good. New files can then use the removed paths. ${slash}`,
        },
      },
    ],
  }),
  ...inGroup('Quotas and access:', {
    quota: [() => import('../cli/quota.js'), { quota: 'Manage quotas', user: "Remove users' personal data" }],
    access: [
      () => import('../cli/access.js'),
      {
        token: 'Manage API tokens',
        member: 'Manage quota members',
        rule: 'Manage access rules for paths',
      },
    ],
    webhook: [() => import('../cli/webhook.js'), { webhook: 'Send request events to other programs' }],
    login: [
      () => import('../cli/login.js'),
      {
        'login [options]': 'Store a token for all commands that use the server',
        logout: {
          line: 'Remove the stored token',
          help: 'Remove the stored token for the server. A token from the identity provider is also revoked there. An API token stays valid.',
        },
      },
    ],
  }),
  ...inGroup('Tape system:', {
    suspensions: [
      () => import('../cli/suspensions.js'),
      {
        'suspend [options] <kind> <name>': {
          line: 'Suspend a drive, volume, library, disk or user',
          help: 'Suspend a drive, volume, library, disk or user: no new work starts, and running work is stopped.',
        },
        'drain [options] <kind> <name>': {
          line: 'Suspend a drive, volume, library, disk or user after running work finishes',
          help: 'Suspend a drive, volume, library, disk or user: no new work starts, but running work finishes.',
        },
        'resume [options] <kind> <name>': 'Resume a suspended or draining drive, volume, library, disk or user',
        'suspensions [options]': 'List suspensions and their reasons',
      },
    ],
    volume: [() => import('../cli/volume.js'), { volume: 'Manage volumes' }],
    library: [() => import('../cli/library.js'), { library: 'Manage tape libraries' }],
    disk: [() => import('../cli/disk.js'), { disk: 'Manage restore disks' }],
  }),
  ...inGroup('Operations:', {
    site: [
      () => import('../cli/site.js'),
      {
        'status [options]': {
          line: 'Show the running gateways and engines',
          help: 'Show the running gateways and engines, with their hosts, their versions and their lag behind the event feed. For operators.',
        },
        'mail [options]': 'List unsent emails, and why they are waiting',
        'legacy [options]': {
          line: 'List HTTP requests without credentials',
          help: 'List HTTP requests that clients sent without credentials, both accepted and rejected, latest first.',
        },
      },
    ],
    doctor: [
      () => import('../cli/doctor.js'),
      {
        'doctor [options]': {
          line: 'Compare the database with the restore disks',
          help: 'Check the counters in the database, compare the database with the restore disks, and report differences as findings.',
        },
      },
    ],
    audit: [
      () => import('../cli/audit.js'),
      { 'audit [options]': 'List changes and the callers who made them, oldest first' },
    ],
    simulate: [
      () => import('../cli/simulate.js'),
      {
        'simulate [options] [trace]': {
          line: 'Compare recall strategies on a trace',
          help: 'Compare recall strategies on a trace (CSV: at,user,volume,start,size) or on a generated load.',
        },
      },
    ],
    completion: [
      () => import('../cli/completion.js'),
      { 'completion <shell>': 'Print the completion script for bash, zsh or fish' },
    ],
  }),
  ...inGroup('Server:', {
    processes: [
      () => import('./commands/processes.js'),
      {
        start: 'Run a gateway and an engine',
        serve: 'Run a gateway: REST, GraphQL and the dashboard',
        work: 'Run an engine: recalls, expiry and email',
      },
    ],
    backup: [
      () => import('../cli/backup.js'),
      {
        'migrate [options]': {
          line: 'Update the database schema',
          help: "Update the database to this version's schema. With DATABASE_URL, create the database if it does not exist.",
        },
        'backup [options] <directory>': {
          line: 'Back up the embedded database to a new directory',
          help: 'Back up the embedded database to a new directory. Tapegate can keep running during the backup. Files on tape and on restore disks are not included.',
        },
        'restore [options] [backup]': {
          line: 'Restore a backup of the embedded database',
          help: 'Restore a backup of the embedded database to an empty DATA_DIR, or with --to-url to an empty database on a PostgreSQL server. If other tools have restored the database in DATABASE_URL, run the command without a backup to complete the restore. New ids are greater than all ids that were used before. Run "tapegate doctor" afterwards.',
        },
      },
    ],
    takeover: [
      () => import('../cli/takeover.js'),
      {
        'takeover [options]': {
          line: 'Take over the disks and libraries of another Tapegate',
          help: 'Take over the restore disks and libraries of another Tapegate, for example after restoring a copy of its database. The other Tapegate then stops using them.',
        },
      },
    ],
    adopt: [
      () => import('../cli/adopt.js'),
      {
        'adopt [options] [source]': {
          line: 'Migrate from django-nla_control',
          help: 'Copy users, requests, files and restored copies from the PostgreSQL database of django-nla_control. The source is the URL of this database. Both systems can keep running. Repeat the command until you switch to Tapegate.',
        },
      },
    ],
  }),
};

export const installation: Commands = {
  commands: Object.values(commandFiles),
  where: 'Environment variables specify the database or the server: "tapegate start --help" lists them.',
};
