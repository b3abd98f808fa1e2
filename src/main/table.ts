/**
 * The table of commands, in the order of the help: what it says of each, and how the file that registers it is loaded. A file is loaded
 * when one of its commands is named, because loading all files takes longer than most commands run.
 */
import type { Command } from 'commander';

export interface CommandFile {
  load(): Promise<{ register(program: Command): void }>;
  /** Descriptions by usage, as the help of the program shows both. */
  commands: Record<string, string>;
}

/** The commands of a program, in the order of its help, and what its help says of the environment. */
export interface Commands {
  commands: readonly CommandFile[];
  where: string;
}

const define = (load: CommandFile['load'], commands: CommandFile['commands']): CommandFile => ({ load, commands });

export const commandFiles = {
  processes: define(() => import('./commands/processes.js'), {
    start: 'gateway and engine',
    serve: 'the gateway alone: REST and GraphQL',
    work: 'the engine alone: recalls, expiry, mail',
  }),
  backup: define(() => import('../cli/backup.js'), {
    'migrate [options]': 'bring the database to the current schema; with DATABASE_URL, make it where it is not there',
    'backup [options] <folder>':
      'copy the embedded database, while it is used, into a new folder; files on tape and on restore disks are not in it',
    'restore [options] [backup]':
      'put a backup of the embedded database back, where there is none, or with --to-url in an empty database of a server; without one, settle a database of DATABASE_URL that its own tools have put back. No id is given twice; the doctor is to be run then',
  }),
  takeover: define(() => import('../cli/takeover.js'), {
    'takeover [options]':
      'take over the restore disks and libraries of another Tapegate, such as the one that this database was copied from; that one stops',
  }),
  adopt: define(() => import('../cli/adopt.js'), {
    'adopt [options] [source]':
      'take over users, requests, files and copies of django-nla_control: of its PostgreSQL (a URL). May be repeated until the switch, while both run',
  }),
  importFiles: define(() => import('../cli/import.js'), {
    'import [options] <file>':
      'add or update catalogue rows from CSV or JSON Lines, or from a list of another system, plain or .gz; - is stdin',
  }),
  archive: define(() => import('../cli/archive.js'), {
    'archive [options] <dir>': 'write the regular files of a directory tree to tape and register them',
  }),
  scan: define(() => import('../cli/scan.js'), {
    'scan [options] <volume>': 'register the files of an LTFS cartridge, with their places on it',
  }),
  quota: define(() => import('../cli/quota.js'), {
    quota: 'users and quotas',
    user: 'people',
  }),
  disk: define(() => import('../cli/disk.js'), {
    disk: 'restore disks',
  }),
  library: define(() => import('../cli/library.js'), {
    library: 'tape systems',
  }),
  volume: define(() => import('../cli/volume.js'), {
    volume: 'volumes and their media',
  }),
  doctor: define(() => import('../cli/doctor.js'), {
    'doctor [options]': 'compare the restore disks, the database and its counters with each other',
  }),
  simulate: define(() => import('../cli/simulate.js'), {
    'simulate [options] [trace]':
      'compare ways to recall on a trace (CSV: at,user,volume,start,size) or a made-up load',
  }),
  ls: define(() => import('../cli/ls.js'), {
    'ls [options] [match]': 'list tape files whose path holds <match>',
  }),
  request: define(() => import('../cli/request.js'), {
    'request [options]': 'ask for files',
  }),
  requests: define(() => import('../cli/requests.js'), {
    'requests [options]': 'list requests',
  }),
  watch: define(() => import('../cli/watch.js'), {
    'watch [options] <id>': 'draw the progress of a request until it has finished',
  }),
  plan: define(() => import('../cli/plan.js'), {
    'plan [options] [id]': 'what the drives do and will do; or where a request stands, and why it waits',
  }),
  verify: define(() => import('../cli/verify.js'), {
    'verify [options] [match]': 'list tape copies that could not be confirmed, of paths that hold <match>',
  }),
  catalogueChanges: define(() => import('../cli/catalogue-changes.js'), {
    'withdraw [options] <path>':
      'take a file, or with a slash at its end all of a folder, out of the catalogue: nobody can ask for it',
    'reinstate [options] <path>': 'bring what is withdrawn back, a file or with a slash at its end all of a folder',
    'rename [options] <from> <to>': 'give a file, or with a slash at the end of both all of a folder, another path',
    'forget [options] <path>':
      'forget what is withdrawn, a file or with a slash at its end all of a folder: its paths are free',
  }),
  audit: define(() => import('../cli/audit.js'), {
    'audit [options]': 'who asked for which change, and what came of it, oldest first',
  }),
  requestChanges: define(() => import('../cli/request-changes.js'), {
    'update [options] <id>': 'change a request: only what is given; one that has ended is revived by a later retention',
    'cancel [options] <ids...>': 'end requests and let their files go',
    'priority [options] <id> <n>': 'recall the files of a request before those of lower priority; 0 is usual',
    'release [options] <id>': 'let single files of a request go before its end',
    'retry [options] <id>': 'have the files of a request that have failed tried again',
  }),
  show: define(() => import('../cli/show.js'), {
    'show [options] <id>': 'one request, and how it goes with its files that are not on disk',
  }),
  suspensions: define(() => import('../cli/suspensions.js'), {
    'hold [options] <kind> <name>': 'take something out of service and stop what runs on it',
    'drain [options] <kind> <name>': 'take something out of service and let what runs on it end',
    'resume [options] <kind> <name>': 'put something back into service that is held or draining',
    'suspensions [options]': 'list what is held or draining, and why',
  }),
  site: define(() => import('../cli/site.js'), {
    'status [options]':
      'the gateways and engines that run: their hosts, versions, and by how much they are behind; for operators',
    'mail [options]': 'the letters that wait to be sent: of which users, how many, and why',
    'legacy [options]': 'what callers who showed nothing have asked for, in vain or not, the latest first',
  }),
  access: define(() => import('../cli/access.js'), {
    token: 'API tokens, by which callers are known',
    member: 'who may use a quota beside its user: as a group does its work space',
    rule: 'who may list, request and fetch the files below a folder',
  }),
  webhook: define(() => import('../cli/webhook.js'), {
    webhook: 'programs elsewhere that are told of requests',
  }),
  login: define(() => import('../cli/login.js'), {
    'login [options]': 'keep a token for the server, which all commands show to it from then on',
    logout: 'keep the token for the server no longer; an identity provider is told, an API token stays good',
  }),
  completion: define(() => import('../cli/completion.js'), {
    'completion <shell>': 'write what bash, zsh or fish needs to complete commands and options',
  }),
};

/** The commands of an installation. */
export const installation: Commands = {
  commands: Object.values(commandFiles),
  where: 'The environment says where the database or the server is: "tapegate start --help" names all of it.',
};
