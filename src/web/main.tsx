/** Starts the page, and completes a sign-in after the redirect of an identity provider. */
import { render } from 'preact';
import { App } from './app';
import { dropToken, storeToken } from './sign-in/session';

async function start(root: Element): Promise<void> {
  // load the code for sign-in only after a redirect of the identity provider, which adds `state` to the address
  if (new URLSearchParams(location.search).has('state')) {
    const { finishSignIn } = await import('./sign-in/oidc');
    const problem = await finishSignIn(storeToken);
    if (problem !== undefined) dropToken(problem);
  }
  render(<App />, root);
}

const root = document.getElementById('app');
if (root) start(root);
