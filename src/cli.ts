/** The command line: what there is, and how it fails. Each command is in src/commands and registers itself. */
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { Command, CommanderError } from 'commander';
import { registerArchive } from './commands/archive.js';
import { registerAudit } from './commands/audit.js';
import { registerBackup } from './commands/backup.js';
import { registerCancel } from './commands/cancel.js';
import { registerDisk } from './commands/disk.js';
import { registerDoctor } from './commands/doctor.js';
import { CommandError, exitCodes } from './commands/failure.js';
import { registerImport } from './commands/import.js';
import { registerLegacy } from './commands/legacy.js';
import { registerLibrary } from './commands/library.js';
import { registerLogin } from './commands/login.js';
import { registerLs } from './commands/ls.js';
import { registerMail } from './commands/mail.js';
import { registerMember } from './commands/member.js';
import { registerMigrate } from './commands/migrate.js';
import { nameOption } from './commands/option-names.js';
import { printable } from './commands/output.js';
import { registerPlan } from './commands/plan.js';
import { registerPriority } from './commands/priority.js';
import { registerProcesses } from './commands/processes.js';
import { registerQuota } from './commands/quota.js';
import { registerRelease } from './commands/release.js';
import { registerRequest } from './commands/request.js';
import { registerRequests } from './commands/requests.js';
import { registerRetry } from './commands/retry.js';
import { registerRule } from './commands/rule.js';
import { registerScan } from './commands/scan.js';
import { registerShow } from './commands/show.js';
import { registerSimulate } from './commands/simulate.js';
import { registerStatus } from './commands/status.js';
import { registerSuspensions } from './commands/suspensions.js';
import { registerToken } from './commands/token.js';
import { registerUpdate } from './commands/update.js';
import { registerUser } from './commands/user.js';
import { registerVerify } from './commands/verify.js';
import { registerVolume } from './commands/volume.js';
import { registerWatch } from './commands/watch.js';
import { ConfigError, environment, hideSecrets, isDebug } from './config.js';
import { hideSecretsOfCrashes } from './crash.js';
import { codeOf, InvalidInputError, messageOf, UnavailableError, UnconfirmedError } from './errors.js';
import { installExactJson } from './json.js';
import { packageRoot } from './package-root.js';

/** In the order of the help. */
const commands = [
  registerProcesses,
  registerMigrate,
  registerBackup,
  registerImport,
  registerArchive,
  registerScan,
  registerQuota,
  registerUser,
  registerDisk,
  registerLibrary,
  registerVolume,
  registerDoctor,
  registerSimulate,
  registerLs,
  registerRequest,
  registerRequests,
  registerWatch,
  registerPlan,
  registerVerify,
  registerAudit,
  registerUpdate,
  registerCancel,
  registerShow,
  registerSuspensions,
  registerStatus,
  registerMail,
  registerLegacy,
  registerPriority,
  registerMember,
  registerRule,
  registerRelease,
  registerRetry,
  registerToken,
  registerLogin,
];

/** What is set here, the commands take over. */
function createProgram(): Command {
  const program = new Command('tapegate')
    .description('Restores files from tape to disk, on request, within per-user quotas.')
    .version(JSON.parse(readFileSync(path.join(packageRoot, 'package.json'), 'utf8')).version)
    .exitOverride()
    .configureOutput({ outputError: (text, write) => write(text.replace(/^error:/, 'tapegate:')) })
    .showHelpAfterError('(--help shows what there is)')
    .addHelpText(
      'after',
      '\nExit codes: 0 done, 1 failed, 2 wrong usage, 3 a request ended without all of its files, ' +
        '4 the server or its database does not answer.\n' +
        'The environment says where the database or the server is: "tapegate start --help" names all of it.',
    );
  for (const register of commands) register(program);
  requireOptionsLast(program);
  return program;
}

/** An option that is mistyped is named as that, before the one that was meant is missed. */
function requireOptionsLast(command: Command): void {
  for (const each of command.commands) requireOptionsLast(each);
  const required = command.options.filter((option) => option.mandatory);
  for (const option of required) option.mandatory = false;
  command.hook('preAction', (_, acting) => {
    if (acting !== command) return;
    const missing = required.find((option) => command.getOptionValue(option.attributeName()) === undefined);
    if (missing) command.error(`error: required option '${missing.flags}' not specified`);
  });
}

/** One line for whatever went wrong; the stack of a bug only where it is asked for. */
function fail(error: unknown): number {
  if (error instanceof CommanderError) return error.exitCode === 0 ? 0 : exitCodes.usage;
  const stack = isDebug(environment) && error instanceof Error ? error.stack : undefined;
  const message = error instanceof InvalidInputError ? nameOption(error.message, error.field) : messageOf(error);
  const text = stack || message || String(error);
  process.stderr.write(`tapegate: ${hideSecrets(text).split('\n').map(printable).join('\n')}\n`);
  if (error instanceof ConfigError || error instanceof InvalidInputError) return exitCodes.usage;
  if (error instanceof UnconfirmedError) return exitCodes.failed;
  if (error instanceof UnavailableError) return exitCodes.unavailable;
  return error instanceof CommandError ? error.exitCode : exitCodes.failed;
}

hideSecretsOfCrashes();
installExactJson();
// its reader has seen enough; a connection that breaks off may say EPIPE as well, and is a failure
process.stdout.on('error', (error) => process.exit(codeOf(error) === 'EPIPE' ? 0 : fail(error)));
process.stderr.on('error', () => {}); // nobody reads it any more
try {
  await createProgram().parseAsync();
} catch (error) {
  process.exitCode = fail(error);
}
