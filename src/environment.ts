/** The environment of this process, for what runs before all of it is read (src/config.ts), or never reads it. */
import { createHider } from './secrets.js';

export type Environment = Record<string, string | undefined>;

/** Of this process. */
export const environment: Environment = process.env;

/** For all that this process logs or prints. */
export const hideSecrets = createHider(environment);

/** Every fault of the environment, a line each. */
export class ConfigError extends Error {
  readonly faults: string[];

  constructor(faults: string[]) {
    super(
      `the environment has ${faults.length === 1 ? 'a fault' : `${faults.length} faults`}:\n${faults.map((f) => `  ${f}`).join('\n')}`,
    );
    this.faults = faults;
  }
}

/** Are the stacks of errors wanted? */
export function isDebug(env: Environment): boolean {
  return env.LOG_LEVEL === 'debug' || env.LOG_LEVEL === 'trace';
}
