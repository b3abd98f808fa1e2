/** The commands of users, and of operators who are elsewhere: those that ask a gateway. */
import { registerAudit } from '../../src/commands/audit.js';
import { registerCancel } from '../../src/commands/cancel.js';
import { registerDisk } from '../../src/commands/disk.js';
import { registerDoctor } from '../../src/commands/doctor.js';
import { registerImport } from '../../src/commands/import.js';
import { registerLegacy } from '../../src/commands/legacy.js';
import { registerLibrary } from '../../src/commands/library.js';
import { registerLogin } from '../../src/commands/login.js';
import { registerLs } from '../../src/commands/ls.js';
import { registerMail } from '../../src/commands/mail.js';
import { registerMember } from '../../src/commands/member.js';
import { registerPlan } from '../../src/commands/plan.js';
import { registerPriority } from '../../src/commands/priority.js';
import { runProgram } from '../../src/commands/program.js';
import { registerQuota } from '../../src/commands/quota.js';
import { registerRelease } from '../../src/commands/release.js';
import { registerRename } from '../../src/commands/rename.js';
import { registerRequest } from '../../src/commands/request.js';
import { registerRequests } from '../../src/commands/requests.js';
import { registerRetry } from '../../src/commands/retry.js';
import { registerRule } from '../../src/commands/rule.js';
import { registerShow } from '../../src/commands/show.js';
import { registerStatus } from '../../src/commands/status.js';
import { registerSuspensions } from '../../src/commands/suspensions.js';
import { registerToken } from '../../src/commands/token.js';
import { registerUpdate } from '../../src/commands/update.js';
import { registerUser } from '../../src/commands/user.js';
import { registerVerify } from '../../src/commands/verify.js';
import { registerVolume } from '../../src/commands/volume.js';
import { registerWatch } from '../../src/commands/watch.js';
import { registerWebhook } from '../../src/commands/webhook.js';
import { registerWithdraw } from '../../src/commands/withdraw.js';

/** In the order of the help. */
const commands = [
  registerImport,
  registerQuota,
  registerUser,
  registerDisk,
  registerLibrary,
  registerVolume,
  registerDoctor,
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

await runProgram({
  commands,
  where: 'TAPEGATE_URL names the server, TAPEGATE_TOKEN what is shown to it; "tapegate login" keeps a token.',
});
