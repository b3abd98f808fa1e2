/** Ends a process on an uncaught error like Node.js, without secrets in the message. */
import { inspect } from 'node:util';
import { environment, hideSecrets } from './environment.js';
import { createPrioritizer } from './journal.js';
import { showSources } from './source-positions.js';

export function hideSecretsOfCrashes(): void {
  process.on('uncaughtException', (error) => {
    process.stderr.write(createPrioritizer(environment)(`${hideSecrets(showSources(inspect(error)))}\n`));
    process.exit(1);
  });
}
