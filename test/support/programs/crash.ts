/** Ends with an unhandled error that contains a secret. */
import { hideSecretsOfCrashes } from '../../../src/main/crash.js';

hideSecretsOfCrashes();
void Promise.reject(new TypeError(process.env.DATABASE_URL));
