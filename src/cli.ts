/** The command line of an installation. */

import { runProgram } from './commands/program.js';
import { installation } from './commands/table.js';

void runProgram(installation);
