/**
 * The table of commands, in the order of the help: what it says of each, and how the file that registers it is loaded. A file is loaded
 * when one of its commands is named, because loading all files takes longer than most commands run.
 */
import type { Command } from 'commander';

export interface CommandFile {
  load(): Promise<(program: Command) => void>;
  /** Descriptions by usage, as the help of the program shows both. */
  commands: Record<string, string>;
}

const define = (load: CommandFile['load'], commands: CommandFile['commands']): CommandFile => ({ load, commands });

export const commandFiles = {
  processes: define(async () => (await import('./processes.js')).registerProcesses, {
    start: 'gateway and engine',
    serve: 'the gateway alone: REST and GraphQL',
    work: 'the engine alone: recalls, expiry, mail',
  }),
  migrate: define(async () => (await import('./migrate.js')).registerMigrate, {
    'migrate [options]': 'bring the database to the current schema; with DATABASE_URL, make it where it is not there',
  }),
  backup: define(async () => (await import('./backup.js')).registerBackup, {
    'backup [options] <folder>':
      'copy the embedded database, while it is used, into a new folder; files on tape and on restore disks are not in it',
    'restore [options] [backup]':
      'put a backup of the embedded database back, where there is none; without one, settle a database of DATABASE_URL that its own tools have put back. No id is given twice; the doctor is to be run then',
  }),
  adopt: define(async () => (await import('./adopt.js')).registerAdopt, {
    'adopt [options] [source]':
      'take over users, requests, files and copies of django-nla_control: of its PostgreSQL (a URL). May be repeated until the switch, while both run',
  }),
  importFiles: define(async () => (await import('./import.js')).registerImport, {
    'import [options] <file>':
      'add or update catalogue rows from CSV or JSON Lines, or from a list of another system, plain or .gz; - is stdin',
  }),
  archive: define(async () => (await import('./archive.js')).registerArchive, {
    'archive [options] <dir>': 'write the regular files of a directory tree to tape and register them',
  }),
  scan: define(async () => (await import('./scan.js')).registerScan, {
    'scan [options] <volume>': 'register the files of an LTFS cartridge, with their places on it',
  }),
  quota: define(async () => (await import('./quota.js')).registerQuota, {
    quota: 'users and quotas',
  }),
  user: define(async () => (await import('./user.js')).registerUser, {
    user: 'people',
  }),
  disk: define(async () => (await import('./disk.js')).registerDisk, {
    disk: 'restore disks',
  }),
  library: define(async () => (await import('./library.js')).registerLibrary, {
    library: 'tape systems',
  }),
  volume: define(async () => (await import('./volume.js')).registerVolume, {
    volume: 'volumes and their media',
  }),
  doctor: define(async () => (await import('./doctor.js')).registerDoctor, {
    'doctor [options]': 'compare the restore disks, the database and its counters with each other',
  }),
  simulate: define(async () => (await import('./simulate.js')).registerSimulate, {
    'simulate [options] [trace]':
      'compare ways to recall on a trace (CSV: at,user,volume,start,size) or a made-up load',
  }),
  ls: define(async () => (await import('./ls.js')).registerLs, {
    'ls [options] [match]': 'list tape files whose path holds <match>',
  }),
  request: define(async () => (await import('./request.js')).registerRequest, {
    'request [options]': 'ask for files',
  }),
  requests: define(async () => (await import('./requests.js')).registerRequests, {
    'requests [options]': 'list requests',
  }),
  watch: define(async () => (await import('./watch.js')).registerWatch, {
    'watch [options] <id>': 'draw the progress of a request until it has finished',
  }),
  plan: define(async () => (await import('./plan.js')).registerPlan, {
    'plan [options] [id]': 'what the drives do and will do; or where a request stands, and why it waits',
  }),
  verify: define(async () => (await import('./verify.js')).registerVerify, {
    'verify [options] [match]': 'list tape copies that could not be confirmed, of paths that hold <match>',
  }),
  catalogueChanges: define(async () => (await import('./catalogue-changes.js')).registerCatalogueChanges, {
    'withdraw [options] <path>':
      'take a file, or with a slash at its end all of a folder, out of the catalogue: nobody can ask for it',
    'reinstate [options] <path>': 'bring what is withdrawn back, a file or with a slash at its end all of a folder',
    'rename [options] <from> <to>': 'give a file, or with a slash at the end of both all of a folder, another path',
    'forget [options] <path>':
      'forget what is withdrawn, a file or with a slash at its end all of a folder: its paths are free',
  }),
  audit: define(async () => (await import('./audit.js')).registerAudit, {
    'audit [options]': 'who asked for which change, and what came of it, oldest first',
  }),
  update: define(async () => (await import('./request-changes.js')).registerUpdate, {
    'update [options] <id>': 'change a request: only what is given; one that has ended is revived by a later retention',
  }),
  cancel: define(async () => (await import('./request-changes.js')).registerCancel, {
    'cancel [options] <ids...>': 'end requests and let their files go',
  }),
  show: define(async () => (await import('./show.js')).registerShow, {
    'show [options] <id>': 'one request, and how it goes with its files that are not on disk',
  }),
  suspensions: define(async () => (await import('./suspensions.js')).registerSuspensions, {
    'hold [options] <kind> <name>': 'take something out of service and stop what runs on it',
    'drain [options] <kind> <name>': 'take something out of service and let what runs on it end',
    'resume [options] <kind> <name>': 'put something back into service that is held or draining',
    'suspensions [options]': 'list what is held or draining, and why',
  }),
  status: define(async () => (await import('./site.js')).registerStatus, {
    'status [options]':
      'the gateways and engines that run: their hosts, versions, and by how much they are behind; and what is kept of what was; for operators',
  }),
  mail: define(async () => (await import('./site.js')).registerMail, {
    'mail [options]': 'the letters that wait to be sent: of which users, how many, and why',
  }),
  legacy: define(async () => (await import('./site.js')).registerLegacy, {
    'legacy [options]': 'what callers who showed nothing have asked for, in vain or not, the latest first',
  }),
  priority: define(async () => (await import('./request-changes.js')).registerPriority, {
    'priority [options] <id> <n>': 'recall the files of a request before those of lower priority; 0 is usual',
  }),
  member: define(async () => (await import('./access.js')).registerMember, {
    member: 'who may use a quota beside its user: as a group does its work space',
  }),
  rule: define(async () => (await import('./access.js')).registerRule, {
    rule: 'who may list, request and fetch the files below a folder',
  }),
  release: define(async () => (await import('./request-changes.js')).registerRelease, {
    'release [options] <id>': 'let single files of a request go before its end',
  }),
  retry: define(async () => (await import('./request-changes.js')).registerRetry, {
    'retry [options] <id>': 'have the files of a request that have failed tried again',
  }),
  token: define(async () => (await import('./access.js')).registerToken, {
    token: 'API tokens, by which callers are known',
  }),
  webhook: define(async () => (await import('./webhook.js')).registerWebhook, {
    webhook: 'programs elsewhere that are told of requests',
  }),
  login: define(async () => (await import('./login.js')).registerLogin, {
    'login [options]': 'keep a token for the server, which all commands show to it from then on',
    logout: 'keep the token for the server no longer; an identity provider is told, an API token stays good',
  }),
  completion: define(async () => (await import('./completion.js')).registerCompletion, {
    'completion <shell>': 'write what bash, zsh or fish needs to complete commands and options',
  }),
};
