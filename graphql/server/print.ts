/**
 * `npm run schema`: writes the schema to graphql/schema.graphql. The file is committed, and a test checks that it is
 * current.
 */
import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { packageRoot } from '../../src/core/package-root.js';
import { schema } from '../schema/schema.js';
import { printSorted } from './sdl.js';

writeFileSync(path.join(packageRoot, 'graphql/schema.graphql'), printSorted(schema));
