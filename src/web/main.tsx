/** Where the page begins, and goes on for whoever comes back from an identity provider. */
import { render } from 'preact';
import { App } from './app';
import { dropToken } from './session';

async function start(root: Element): Promise<void> {
  // most come with nothing of the kind in the address, and load nothing of it
  if (new URLSearchParams(location.search).has('state')) {
    const { finishSignIn } = await import('./oidc');
    const problem = await finishSignIn();
    if (problem !== undefined) dropToken(problem);
  }
  render(<App />, root);
}

const root = document.getElementById('app');
if (root) start(root);
