/** Starts the page, and completes a sign-in after an identity provider's redirect. */
import { render } from 'preact';
import { App } from './app';
import { dropToken, storeToken } from './sign-in/session';
import { applyTheme } from './theme';

applyTheme();

async function start(root: Element): Promise<void> {
  // load the code for sign-in only after the identity provider's redirect, which adds `state` to the address
  if (new URLSearchParams(location.search).has('state')) {
    const { finishSignIn } = await import('./sign-in/oidc');
    const problem = await finishSignIn(storeToken);
    if (problem !== undefined) dropToken(problem);
  }
  render(<App />, root);
}

const root = document.getElementById('app');
if (root) start(root);
