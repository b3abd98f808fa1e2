/**
 * Writes the schema to graphql/schema.graphql. `npm run schema` runs this script. A test checks that the committed file
 * is current.
 */
import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { packageRoot } from '../../src/core/package-root.js';
import { schema } from '../schema/schema.js';
import { printSorted } from './sdl.js';

writeFileSync(path.join(packageRoot, 'graphql/schema.graphql'), printSorted(schema));
