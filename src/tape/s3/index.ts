/** The kind `s3`: objects in the archive classes of S3, or of what speaks its protocol. README.md beside it is for operators. */
import type { StagingKind } from '../kind.js';
import { createS3Library } from './library.js';
import { priceOf } from './price.js';
import { parseS3Settings, type S3Settings } from './settings.js';

export const s3: StagingKind<S3Settings> = {
  contract: 'staging',
  parse: parseS3Settings,
  create: (settings, { env }) => createS3Library(settings, env),

  terms(settings) {
    const { charges, waitSeconds, prefixes } = settings;
    return {
      prefixes: prefixes.map(({ path }) => path),
      ...(charges && { price: (files) => priceOf(charges, settings, files) }),
      ...(waitSeconds && { waitSeconds }),
    };
  },
};
