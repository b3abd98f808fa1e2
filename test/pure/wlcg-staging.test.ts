/** The suite of staging libraries for the library type `wlcg` and each of its servers. */
import { describeStagingLibrary } from '../support/staging-library.js';
import { createWlcgBench } from '../support/wlcg-bench.js';

const lifetime = { diskLifetime: 'PT36H', targetedMetadata: { 'fake-site': { activity: 'restores' } } };

describeStagingLibrary('wlcg (dCache)', () => createWlcgBench('dcache', { tls: true, settings: lifetime }), {
  release: true,
  ids: true,
  until: true,
});

describeStagingLibrary('wlcg (EOS and CTA)', () => createWlcgBench('eos', { settings: lifetime }), {
  release: true,
  ids: true,
  until: false,
});

describeStagingLibrary('wlcg (StoRM Tape)', () => createWlcgBench('storm'), {
  release: false,
  ids: true,
  until: false,
});
