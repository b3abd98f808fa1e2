/** How a process ends for an error that nobody has caught: as Node.js ends it, but for the secrets in what it says. */
import { inspect } from 'node:util';
import { hideSecrets } from './environment.js';
import { showSources } from './source-positions.js';

/** Once for each process. A promise that is rejected unheard counts as well. */
export function hideSecretsOfCrashes(): void {
  process.on('uncaughtException', (error) => {
    process.stderr.write(`${hideSecrets(showSources(inspect(error)))}\n`);
    process.exit(1);
  });
}
