/** The command line of an installation. */
import { installation } from './commands/installation.js';
import { runProgram } from './commands/program.js';

void runProgram(installation);
