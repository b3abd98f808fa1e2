/** By what a file of a bulk is known within it. */
import { createHash } from 'node:crypto';
import { findPathProblem } from '../input.js';

/** Its path; of what is no path at all, a text that none begins with, and that the database takes. */
export function bulkKeyOf(path: string): string {
  if (findPathProblem(path) === undefined) return path;
  return `no path: ${createHash('sha256').update(path).digest('hex')}`;
}
