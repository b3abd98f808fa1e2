/** Program that ends with an unhandled error. The error contains a secret. */
import { hideSecretsOfCrashes } from '../../../src/main/crash.js';

hideSecretsOfCrashes();
void Promise.reject(new TypeError(process.env.DATABASE_URL));
