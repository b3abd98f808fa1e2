/**
 * Writes the OpenAPI document to rest/openapi.json. `npm run schema` runs this script. A test checks that the committed
 * file is current.
 */
import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { packageRoot } from '../../src/core/package-root.js';
import { formatRest } from './openapi.js';

writeFileSync(path.join(packageRoot, 'rest/openapi.json'), formatRest());
