/** The command line of an installation. */

import { runProgram } from './program.js';
import { installation } from './table.js';

void runProgram(installation);
