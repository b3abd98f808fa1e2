/** Ends a process on an uncaught error like Node.js, without secrets in the message. */
import { inspect } from 'node:util';
import { hideSecrets } from './environment.js';
import { showSources } from './source-positions.js';

export function hideSecretsOfCrashes(): void {
  process.on('uncaughtException', (error) => {
    process.stderr.write(`${hideSecrets(showSources(inspect(error)))}\n`);
    process.exit(1);
  });
}
