/** All commands of an installation. Each is in this folder and registers itself. */
import { registerAdopt } from './adopt.js';
import { registerArchive } from './archive.js';
import { registerAudit } from './audit.js';
import { registerBackup } from './backup.js';
import { registerCancel } from './cancel.js';
import { registerDisk } from './disk.js';
import { registerDoctor } from './doctor.js';
import { registerImport } from './import.js';
import { registerLegacy } from './legacy.js';
import { registerLibrary } from './library.js';
import { registerLogin } from './login.js';
import { registerLs } from './ls.js';
import { registerMail } from './mail.js';
import { registerMember } from './member.js';
import { registerMigrate } from './migrate.js';
import { registerPlan } from './plan.js';
import { registerPriority } from './priority.js';
import { registerProcesses } from './processes.js';
import type { Commands } from './program.js';
import { registerQuota } from './quota.js';
import { registerRelease } from './release.js';
import { registerRename } from './rename.js';
import { registerRequest } from './request.js';
import { registerRequests } from './requests.js';
import { registerRetry } from './retry.js';
import { registerRule } from './rule.js';
import { registerScan } from './scan.js';
import { registerShow } from './show.js';
import { registerSimulate } from './simulate.js';
import { registerStatus } from './status.js';
import { registerSuspensions } from './suspensions.js';
import { registerToken } from './token.js';
import { registerUpdate } from './update.js';
import { registerUser } from './user.js';
import { registerVerify } from './verify.js';
import { registerVolume } from './volume.js';
import { registerWatch } from './watch.js';
import { registerWebhook } from './webhook.js';
import { registerWithdraw } from './withdraw.js';

/** In the order of the help. */
export const installation: Commands = {
  commands: [
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
  ],
  where: 'The environment says where the database or the server is: "tapegate start --help" names all of it.',
};
