/** The commands of an installation. */
import type { Commands } from './program.js';
import { commandFiles } from './table.js';

export const installation: Commands = {
  commands: Object.values(commandFiles),
  where: 'The environment says where the database or the server is: "tapegate start --help" names all of it.',
};
