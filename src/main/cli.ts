/** Runs the command `tapegate`. */

import { runProgram } from './program.js';
import { installation } from './table.js';

void runProgram(installation);
