/** Program that starts the embedded database in a directory. Argument: the directory. */
import { startEmbedded } from '../../../src/db/embedded/embedded.js';

void startEmbedded({ dataDir: process.argv[2] ?? '', startTimeoutMs: 2000 });
