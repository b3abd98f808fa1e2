/**
 * The table of commands: what a help says of each, and how the file that registers it is loaded. The files are loaded when a
 * command is named, because loading all of them takes longer than most commands run.
 */
import type { Command } from 'commander';

export type Register = (program: Command) => void;

/** The commands that one file registers. */
export interface CommandFile {
  load(): Promise<Register>;
  /** Descriptions by usage, as the help of the program shows both. */
  commands: Record<string, string>;
}

export const processes: CommandFile = {
  load: async () => (await import('./processes.js')).registerProcesses,
  commands: {
    start: 'gateway and engine',
    serve: 'the gateway alone: REST and GraphQL',
    work: 'the engine alone: recalls, expiry, mail',
  },
};

export const migrate: CommandFile = {
  load: async () => (await import('./migrate.js')).registerMigrate,
  commands: {
    'migrate [options]': 'bring the database to the current schema; with DATABASE_URL, make it where it is not there',
  },
};

export const backup: CommandFile = {
  load: async () => (await import('./backup.js')).registerBackup,
  commands: {
    'backup [options] <folder>':
      'copy the embedded database, while it is used, into a new folder; files on tape and on restore disks are not in it',
    'restore [options] [backup]':
      'put a backup of the embedded database back, where there is none; without one, settle a database of DATABASE_URL that its own tools have put back. No id is given twice; the doctor is to be run then',
  },
};

export const adopt: CommandFile = {
  load: async () => (await import('./adopt.js')).registerAdopt,
  commands: {
    'adopt [options] [source]':
      'take over users, requests, files and copies of django-nla_control: of its PostgreSQL (a URL), or of a dump of PostgreSQL or MySQL, plain or .gz. May be repeated until the switch, while both run',
  },
};

export const importFiles: CommandFile = {
  load: async () => (await import('./import.js')).registerImport,
  commands: {
    'import [options] <file>':
      'add or update catalogue rows from CSV or JSON Lines, or from a list of another system, plain or .gz; - is stdin',
  },
};

export const archive: CommandFile = {
  load: async () => (await import('./archive.js')).registerArchive,
  commands: {
    'archive [options] <dir>': 'write the regular files of a directory tree to tape and register them',
  },
};

export const scan: CommandFile = {
  load: async () => (await import('./scan.js')).registerScan,
  commands: {
    'scan [options] <volume>': 'register the files of an LTFS cartridge, with their places on it',
  },
};

export const quota: CommandFile = {
  load: async () => (await import('./quota.js')).registerQuota,
  commands: { quota: 'users and quotas' },
};

export const user: CommandFile = {
  load: async () => (await import('./user.js')).registerUser,
  commands: { user: 'people' },
};

export const disk: CommandFile = {
  load: async () => (await import('./disk.js')).registerDisk,
  commands: { disk: 'restore disks' },
};

export const library: CommandFile = {
  load: async () => (await import('./library.js')).registerLibrary,
  commands: { library: 'tape systems' },
};

export const volume: CommandFile = {
  load: async () => (await import('./volume.js')).registerVolume,
  commands: { volume: 'volumes and their media' },
};

export const doctor: CommandFile = {
  load: async () => (await import('./doctor.js')).registerDoctor,
  commands: {
    'doctor [options]': 'compare the restore disks, the database and its counters with each other',
  },
};

export const simulate: CommandFile = {
  load: async () => (await import('./simulate.js')).registerSimulate,
  commands: {
    'simulate [options] [trace]':
      'compare ways to recall on a trace (CSV: at,user,volume,start,size) or a made-up load',
  },
};

export const ls: CommandFile = {
  load: async () => (await import('./ls.js')).registerLs,
  commands: {
    'ls [options] [match]': 'list tape files whose path holds <match>',
  },
};

export const request: CommandFile = {
  load: async () => (await import('./request.js')).registerRequest,
  commands: {
    'request [options]': 'ask for files',
  },
};

export const requests: CommandFile = {
  load: async () => (await import('./requests.js')).registerRequests,
  commands: {
    'requests [options]': 'list requests',
  },
};

export const watch: CommandFile = {
  load: async () => (await import('./watch.js')).registerWatch,
  commands: {
    'watch [options] <id>': 'draw the progress of a request until it has finished',
  },
};

export const plan: CommandFile = {
  load: async () => (await import('./plan.js')).registerPlan,
  commands: {
    'plan [options] [id]': 'what the drives do and will do; or where a request stands, and why it waits',
  },
};

export const verify: CommandFile = {
  load: async () => (await import('./verify.js')).registerVerify,
  commands: {
    'verify [options] [match]': 'list tape copies that could not be confirmed, of paths that hold <match>',
  },
};

export const withdraw: CommandFile = {
  load: async () => (await import('./withdraw.js')).registerWithdraw,
  commands: {
    'withdraw [options] <path>':
      'take a file, or with a slash at its end all of a folder, out of the catalogue: nobody can ask for it',
    'reinstate [options] <path>': 'bring what is withdrawn back, a file or with a slash at its end all of a folder',
  },
};

export const rename: CommandFile = {
  load: async () => (await import('./rename.js')).registerRename,
  commands: {
    'rename [options] <from> <to>': 'give a file, or with a slash at the end of both all of a folder, another path',
    'forget [options] <path>':
      'forget what is withdrawn, a file or with a slash at its end all of a folder: its paths are free',
  },
};

export const audit: CommandFile = {
  load: async () => (await import('./audit.js')).registerAudit,
  commands: {
    'audit [options]': 'who asked for which change, and what came of it, oldest first',
  },
};

export const update: CommandFile = {
  load: async () => (await import('./update.js')).registerUpdate,
  commands: {
    'update [options] <id>': 'change a request: only what is given; one that has ended is revived by a later retention',
  },
};

export const cancel: CommandFile = {
  load: async () => (await import('./cancel.js')).registerCancel,
  commands: {
    'cancel [options] <ids...>': 'end requests and let their files go',
  },
};

export const show: CommandFile = {
  load: async () => (await import('./show.js')).registerShow,
  commands: {
    'show [options] <id>': 'one request, and how it goes with its files that are not on disk',
  },
};

export const suspensions: CommandFile = {
  load: async () => (await import('./suspensions.js')).registerSuspensions,
  commands: {
    'hold [options] <kind> <name>': 'take something out of service and stop what runs on it',
    'drain [options] <kind> <name>': 'take something out of service and let what runs on it end',
    'resume [options] <kind> <name>': 'put something back into service that is held or draining',
    'suspensions [options]': 'list what is held or draining, and why',
  },
};

export const status: CommandFile = {
  load: async () => (await import('./status.js')).registerStatus,
  commands: {
    'status [options]':
      'the gateways and engines that run: their hosts, versions, and by how much they are behind; and what is kept of what was; for operators',
  },
};

export const mail: CommandFile = {
  load: async () => (await import('./mail.js')).registerMail,
  commands: {
    'mail [options]': 'the letters that wait to be sent: of which users, how many, and why',
  },
};

export const legacy: CommandFile = {
  load: async () => (await import('./legacy.js')).registerLegacy,
  commands: {
    'legacy [options]': 'what callers who showed nothing have asked for, in vain or not, the latest first',
  },
};

export const priority: CommandFile = {
  load: async () => (await import('./priority.js')).registerPriority,
  commands: {
    'priority [options] <id> <n>': 'recall the files of a request before those of lower priority; 0 is usual',
  },
};

export const member: CommandFile = {
  load: async () => (await import('./member.js')).registerMember,
  commands: { member: 'who may use a quota beside its user: as a group does its work space' },
};

export const rule: CommandFile = {
  load: async () => (await import('./rule.js')).registerRule,
  commands: { rule: 'who may list, request and fetch the files below a folder' },
};

export const release: CommandFile = {
  load: async () => (await import('./release.js')).registerRelease,
  commands: {
    'release [options] <id>': 'let single files of a request go before its end',
  },
};

export const retry: CommandFile = {
  load: async () => (await import('./retry.js')).registerRetry,
  commands: {
    'retry [options] <id>': 'have the files of a request that have failed tried again',
  },
};

export const token: CommandFile = {
  load: async () => (await import('./token.js')).registerToken,
  commands: { token: 'API tokens, by which callers are known' },
};

export const webhook: CommandFile = {
  load: async () => (await import('./webhook.js')).registerWebhook,
  commands: { webhook: 'programs elsewhere that are told of requests' },
};

export const login: CommandFile = {
  load: async () => (await import('./login.js')).registerLogin,
  commands: {
    'login [options]': 'keep a token for the server, which all commands show to it from then on',
    logout: 'keep the token for the server no longer; an identity provider is told, an API token stays good',
  },
};

export const completion: CommandFile = {
  load: async () => (await import('./completion.js')).registerCompletion,
  commands: {
    'completion <shell>': 'write what bash, zsh or fish needs to complete commands and options',
  },
};

export const man: CommandFile = {
  load: async () => (await import('./man.js')).registerMan,
  commands: {
    'man <folder>': 'write a page of the manual for each command into a folder, as tapegate-request.1',
  },
};
