/** Inputs of all kinds, each as often as it is worth. */
import type { Arbitrary } from 'fast-check';
import { graphqlInput, streamInput } from './graphql-inputs.js';
import { importInput, importRequest } from './import-inputs.js';
import type { Input } from './input.js';
import { rawInput } from './raw-inputs.js';
import { restInput } from './rest-inputs.js';
import { choose } from './texts.js';

export const inputs: Arbitrary<Input> = choose<Input>(
  [42, restInput],
  [41, graphqlInput],
  [8, streamInput],
  [7, rawInput],
  [1, importInput],
  [2, importRequest],
);
