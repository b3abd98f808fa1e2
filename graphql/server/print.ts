/** Writes the schema to graphql/schema.graphql. Run this script with `npm run schema`. */
import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { packageRoot } from '../../src/core/package-root.js';
import { schema } from '../schema/schema.js';
import { printSorted } from './sdl.js';

writeFileSync(path.join(packageRoot, 'graphql/schema.graphql'), printSorted(schema));
