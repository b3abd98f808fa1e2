/** `npm run schema`: prints the OpenAPI document into rest/openapi.json, which is committed and held by a test. */
import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { packageRoot } from '../../src/core/package-root.js';
import { formatRest } from './openapi.js';

writeFileSync(path.join(packageRoot, 'rest/openapi.json'), formatRest());
