#!/usr/bin/env node
/** The command line: what there is, and how it fails. Each command is in src/commands. */
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { Argument, Command, CommanderError } from 'commander';
import { CommandError, exitCodes } from './commands/failure.js';
import { printable } from './commands/output.js';
import { type Config, ConfigError, environment, isDebug, readConfig, readServerUrl } from './config.js';
import { codeOf, InvalidInputError, messageOf } from './errors.js';
import { installExactJson } from './json.js';
import { packageRoot } from './package-root.js';
import { backendNames } from './tape/index.js';

// loaded when they are run: the server's modules take longer than most commands
const catalogue = () => import('./commands/catalogue.js');
const requests = () => import('./commands/requests.js');
const operate = () => import('./commands/operate.js');
const server = () => import('./commands/serve.js');

const config = (): Config => readConfig(environment, backendNames);
const url = (): string => readServerUrl(environment);

function createProgram(): Command {
  const program = new Command('tapegate')
    .description('Restores files from tape to disk, on request, within per-user quotas.')
    .version(JSON.parse(readFileSync(path.join(packageRoot, 'package.json'), 'utf8')).version)
    .exitOverride()
    .configureOutput({ outputError: (text, write) => write(text.replace(/^error:/, 'tapegate:')) })
    .showHelpAfterError('(--help shows what there is)')
    .addHelpText('after', '\nExit codes: 0 done, 1 failed, 2 wrong usage, 3 a request ended without all of its files.');
  const command = (parent: Command, usage: string, description: string) =>
    parent.command(usage).description(description).exitOverride();
  const json = (c: Command) => c.option('--json', 'print JSON for scripts, a document a line');

  command(program, 'start', 'gateway and engine in one process').action(async () => (await server()).start(config()));
  command(program, 'serve', 'the gateway alone: REST and GraphQL').action(async () => (await server()).serve(config()));
  command(program, 'work', 'the engine alone: recalls, expiry, mail').action(async () =>
    (await server()).work(config()),
  );
  json(command(program, 'migrate', 'bring the database to the current schema')).action(async (options) =>
    (await catalogue()).migrate(config(), options),
  );
  json(
    command(program, 'import <file>', 'add or update catalogue rows from CSV or JSON Lines, plain or .gz; - is stdin'),
  ).action(async (file, options) => (await catalogue()).importFile(config(), file, options));
  json(command(program, 'archive <dir>', 'write the regular files of a directory tree to tape and register them'))
    .option('--prefix <path>', 'put before the paths below <dir>', '/')
    .option('--spot <name>', 'the storage spot that the files come from')
    .option('--volume-size <size>', 'what a volume takes before a new one is begun', '100G')
    .option('--move', 'remove each file once its tape copy is verified')
    .action(async (dir, options) => (await catalogue()).archive(config(), dir, options));

  const quota = command(program, 'quota', 'users and quotas');
  json(command(quota, 'set <user>', 'make or change a quota'))
    .requiredOption('--size <size>', 'bytes, such as 500000000, 500M or 10T')
    .option('--email <address>')
    .option('--notes <text>')
    .option('--weight <n>', 'part of the drives: who has 2 may have twice the drive time of who has 1')
    .action(async (user, options) => (await catalogue()).quotaSet(config(), user, options));
  json(command(quota, 'list', 'all quotas')).action(async (options) =>
    (await catalogue()).quotaList(config(), options),
  );
  json(command(quota, 'show <user>', 'one quota')).action(async (user, options) =>
    (await catalogue()).quotaShow(config(), user, options),
  );

  const disk = command(program, 'disk', 'restore disks');
  json(command(disk, 'add <mountpoint>', 'add a restore disk, or change its allocation'))
    .requiredOption('--size <size>', 'bytes, such as 500G or 10T')
    .option('--mark', 'what is mounted there now is the disk, even without the copies that should be on it')
    .action(async (mountpoint, options) => (await catalogue()).diskAdd(config(), mountpoint, options));
  json(command(disk, 'list', 'all restore disks')).action(async (options) =>
    (await catalogue()).diskList(config(), options),
  );

  const volume = command(program, 'volume', 'volumes and their media');
  json(command(volume, 'set [names...]', 'say of which medium volumes are: the planner goes by it'))
    .requiredOption('--medium <name>', 'lto-8, lto-9 or linear')
    .option('--all', 'all volumes')
    .action(async (names, options) => (await import('./commands/volumes.js')).volumeSet(config(), names, options));
  json(command(volume, 'list', 'all volumes')).action(async (options) =>
    (await import('./commands/volumes.js')).volumeList(config(), options),
  );
  json(command(program, 'doctor', 'compare the restore disks, the database and its counters with each other'))
    .option('--repair', 'mend what can be mended, also while Tapegate runs')
    .option('--checksums', 'read each restored copy and compare its checksum')
    .action(async (options) => (await import('./commands/doctor.js')).doctor(config(), options));

  json(
    command(
      program,
      'simulate [trace]',
      'compare ways to recall on a trace (CSV: at,user,volume,start,size) or a made-up load',
    ),
  )
    .option('--medium <name>', 'cost model of the drives and tapes', 'lto-8')
    .option('--drives <n>', 'drives', '2')
    .option('--files <n>', 'files of the made-up load', '2000')
    .option('--volumes <n>', 'volumes they are spread over', '20')
    .option('--size <bytes>', 'size of each file', '2500000000')
    .option('--seed <n>', 'of the random places', '7')
    .option('--crowd', 'one user asks for all files, and an hour later ten others for ten each')
    .action(async (trace, options) => (await import('./commands/simulate.js')).simulateLoad(trace, options));

  json(command(program, 'ls [match]', 'list tape files whose path holds <match>'))
    .option('--stages <letters>', 'only at these stages: any of U, D, T, A, R')
    .option('--limit <n>', 'list at most so many', '1000')
    .action(async (match, options) => (await requests()).ls(url(), match, options));
  json(command(program, 'request', 'ask for files'))
    .requiredOption('--quota <user>', 'the user whose quota is charged')
    .option('--pattern <text>', 'all files whose path holds the text, now and later')
    .option('--file <paths...>', 'logical paths; @name reads them from a file, - from stdin, a path a line')
    .option('--retention <date>', 'how long the files stay on disk, UTC; five days unless given')
    .option('--label <text>')
    .option('--max-files <n>', 'what the request may hold at most, also of files that appear later')
    .option('--max-bytes <size>', 'the same in bytes, such as 10T')
    .option('--notify-first <address>', 'mail when the first file is on disk')
    .option('--notify-last <address>', 'mail when nothing is left to do')
    .option('--watch', 'draw the progress until the request has finished')
    .option('--dry-run', 'say what it would take and when it may be done, and ask for nothing')
    .action(async (options) => (await requests()).request(url(), options));
  json(command(program, 'requests', 'list requests'))
    .option('--quota <user>', 'only of this user')
    .option('--all', 'expired and cancelled ones too')
    .action(async (options) => (await requests()).requests(url(), options));
  json(command(program, 'watch <id>', 'draw the progress of a request until it has finished')).action(
    async (id, options) => (await requests()).watch(url(), id, options),
  );
  json(command(program, 'plan [id]', 'what the drives do and will do; or where a request stands, and why it waits'))
    .option('--limit <n>', 'show at most so many volumes', '50')
    .action(async (id, options) => (await import('./commands/plan.js')).plan(url(), id, options));
  json(command(program, 'verify [match]', 'list tape copies that could not be confirmed, of paths that hold <match>'))
    .option('--again', 'have them tried again at once')
    .option('--limit <n>', 'list at most so many', '1000')
    .action(async (match, options) => (await import('./commands/verify.js')).verify(url(), match, options));
  json(command(program, 'cancel <id>', 'end a request and let its files go')).action(async (id, options) =>
    (await requests()).cancel(url(), id, options),
  );
  json(command(program, 'show <id>', 'one request, and how it goes with its files that are not on disk'))
    .option('--limit <n>', 'show at most so many files', '1000')
    .action(async (id, options) => (await import('./commands/show.js')).show(url(), id, options));
  const thing = (name: string, description: string) =>
    json(command(program, name, description))
      .addArgument(new Argument('<kind>', 'what it is').choices(['volume', 'drive', 'user', 'disk', 'backend']))
      .argument('<name>', 'of the volume, drive or back end; the user; the mount point of the disk');
  for (const [name, mode, description] of [
    ['hold', 'HELD', 'take something out of service and stop what runs on it'],
    ['drain', 'DRAINING', 'take something out of service and let what runs on it end'],
  ] as const) {
    thing(name, description)
      .option('--reason <text>', 'why, for people')
      .addHelpText('after', HOLD_HELP)
      .action(async (kind, name, options) => (await operate()).suspend(url(), { kind, name, mode }, options));
  }
  thing('resume', 'put something back into service that is held or draining').action(async (kind, name, options) =>
    (await operate()).resume(url(), { kind, name }, options),
  );
  json(command(program, 'suspensions', 'list what is held or draining, and why')).action(async (options) =>
    (await operate()).suspensions(url(), options),
  );
  json(
    command(program, 'priority <id> <n>', 'recall the files of a request before those of lower priority; 0 is usual'),
  )
    .addHelpText('after', '\nA negative one is given after --: tapegate priority 7 -- -5')
    .action(async (id, value, options) => (await operate()).priority(url(), id, value, options));
  json(command(program, 'release <id>', 'let single files of a request go before its end'))
    .option('--file <paths...>', 'logical paths; @name reads them from a file, - from stdin, a path a line')
    .option('--match <text>', 'all files of the request whose path holds the text')
    .action(async (id, options) => (await import('./commands/release.js')).release(url(), id, options));
  return program;
}

const HOLD_HELP = `
Nothing new begins on what is held or draining, until it is resumed; what waits for it goes on waiting.
hold   stops the recalls that run: their files go back into the queue, and it does not count as a try
drain  lets the recalls that run end

volume   its files wait
drive    the other drives go on
user     the user's files wait, but for those that another user waits for too
disk     a restore disk: recalls go to the other disks, or wait; what is on it stays
backend  all drives of the tape back end`;

/** One line for whatever went wrong; the stack of a bug only where it is asked for. */
function fail(error: unknown): number {
  if (error instanceof CommanderError) return error.exitCode === 0 ? 0 : exitCodes.usage;
  const stack = isDebug(environment) && error instanceof Error ? error.stack : undefined;
  const text = stack || messageOf(error) || String(error);
  process.stderr.write(`tapegate: ${text.split('\n').map(printable).join('\n')}\n`);
  if (error instanceof ConfigError || error instanceof InvalidInputError) return exitCodes.usage;
  return error instanceof CommandError ? error.exitCode : exitCodes.failed;
}

installExactJson();
// its reader has seen enough; a connection that breaks off may say EPIPE as well, and is a failure
process.stdout.on('error', (error) => process.exit(codeOf(error) === 'EPIPE' ? 0 : fail(error)));
process.stderr.on('error', () => {}); // nobody reads it any more
try {
  await createProgram().parseAsync();
} catch (error) {
  process.exitCode = fail(error);
}
