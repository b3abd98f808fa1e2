/** The kind `wlcg`: storage elements with the WLCG Tape REST API. What operators are to know is in README.md. */
import type { StagingKind } from '../kind.js';
import { createWlcgLibrary } from './library.js';
import { parseWlcgSettings, type WlcgSettings } from './settings.js';

export const wlcg: StagingKind<WlcgSettings> = {
  contract: 'staging',
  parse: parseWlcgSettings,
  create: (settings, { env }) => createWlcgLibrary(settings, env),
  terms: ({ waitSeconds, prefixes }) => ({ prefixes: [`${prefixes.own}/`], ...(waitSeconds && { waitSeconds }) }),
};
