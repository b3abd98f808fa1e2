/** The commands of users, and of operators who are elsewhere: those that ask a gateway. */
import { runProgram } from '../../src/commands/program.js';
import * as table from '../../src/commands/table.js';

/** In the order of the help. */
const commands = [
  table.importFiles,
  table.quota,
  table.user,
  table.disk,
  table.library,
  table.volume,
  table.doctor,
  table.ls,
  table.request,
  table.requests,
  table.watch,
  table.plan,
  table.verify,
  table.withdraw,
  table.rename,
  table.audit,
  table.update,
  table.cancel,
  table.show,
  table.suspensions,
  table.status,
  table.mail,
  table.legacy,
  table.priority,
  table.member,
  table.rule,
  table.release,
  table.retry,
  table.token,
  table.webhook,
  table.login,
];

await runProgram({
  commands,
  where: 'TAPEGATE_URL names the server, TAPEGATE_TOKEN what is shown to it; "tapegate login" keeps a token.',
});
