/** The command line of an installation: all commands. Each is in src/commands and registers itself. */
import { registerAdopt } from './commands/adopt.js';
import { registerArchive } from './commands/archive.js';
import { registerAudit } from './commands/audit.js';
import { registerBackup } from './commands/backup.js';
import { registerCancel } from './commands/cancel.js';
import { registerDisk } from './commands/disk.js';
import { registerDoctor } from './commands/doctor.js';
import { registerImport } from './commands/import.js';
import { registerLegacy } from './commands/legacy.js';
import { registerLibrary } from './commands/library.js';
import { registerLogin } from './commands/login.js';
import { registerLs } from './commands/ls.js';
import { registerMail } from './commands/mail.js';
import { registerMember } from './commands/member.js';
import { registerMigrate } from './commands/migrate.js';
import { registerPlan } from './commands/plan.js';
import { registerPriority } from './commands/priority.js';
import { registerProcesses } from './commands/processes.js';
import { runProgram } from './commands/program.js';
import { registerQuota } from './commands/quota.js';
import { registerRelease } from './commands/release.js';
import { registerRename } from './commands/rename.js';
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
import { registerWebhook } from './commands/webhook.js';
import { registerWithdraw } from './commands/withdraw.js';

/** In the order of the help. */
const commands = [
  registerProcesses,
  registerMigrate,
  registerBackup,
  registerAdopt,
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
  registerWithdraw,
  registerRename,
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
  registerWebhook,
  registerLogin,
];

await runProgram(
  commands,
  'The environment says where the database or the server is: "tapegate start --help" names all of it.',
);
