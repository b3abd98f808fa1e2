/** Writes the OpenAPI document to rest/openapi.json. Run this script with `npm run schema`. */
import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { packageRoot } from '../../src/core/package-root.js';
import { formatRest } from './openapi.js';

writeFileSync(path.join(packageRoot, 'rest/openapi.json'), formatRest());
