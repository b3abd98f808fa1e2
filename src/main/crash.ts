/** Ends a process on an uncaught error, as Node.js does, but hides secrets in the message. */
import { inspect } from 'node:util';
import { environment, hideSecrets } from '../core/environment.js';
import { createPrioritizer } from '../core/journal.js';
import { showSources } from '../core/source-positions.js';

export function hideSecretsOfCrashes(): void {
  process.on('uncaughtException', (error) => {
    process.stderr.write(createPrioritizer(environment)(`${hideSecrets(showSources(inspect(error)))}\n`));
    process.exit(1);
  });
}
