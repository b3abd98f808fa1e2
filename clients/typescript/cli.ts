/** The commands that work through a gateway, for users and remote operators. */
import { runProgram } from '../../src/main/program.js';
import { commandFiles } from '../../src/main/table.js';

/** The other commands open the database, or run on the host of an engine. */
const { processes, backup, adopt, archive, scan, simulate, ...commands } = commandFiles;

await runProgram({
  commands: Object.values(commands),
  where: 'TAPEGATE_URL names the gateway. "tapegate login" stores a token, or TAPEGATE_TOKEN contains one.',
});
