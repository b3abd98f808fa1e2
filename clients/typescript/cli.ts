/** The commands of users, and of operators who are elsewhere: those that ask a gateway. */
import { runProgram } from '../../src/main/program.js';
import { commandFiles } from '../../src/main/table.js';

/** The others open the database, or work beside an engine. */
const { processes, backup, adopt, archive, scan, simulate, ...commands } = commandFiles;

await runProgram({
  commands: Object.values(commands),
  where: 'TAPEGATE_URL names the server, and TAPEGATE_TOKEN contains a token for it. "tapegate login" stores one.',
});
