/** Loaded before the program: an engine works with the staging libraries of the torture as if their kind were one of its own. */
import { registerTortureKind } from './remote-kind.js';

registerTortureKind();
