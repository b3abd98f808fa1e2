/** The sign-in page, which the dashboard shows when the gateway requires a valid token. */

import type { ComponentChildren } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { Button } from '../parts/button';
import { LogIn } from '../parts/icons';
import { Refused } from '../parts/problem';
import { Title } from '../parts/title';
import type { Providers } from './oidc';
import { readSignOutReason, storeToken } from './session';

export function SignIn() {
  const [providers, setProviders] = useState<Providers>();
  const [problem, setProblem] = useState(readSignOutReason());
  const [isPersistent, setPersistent] = useState(false);
  useEffect(() => {
    // ignore a failure to find identity providers, because the user can paste a token instead
    import('./oidc').then(({ findProviders }) => findProviders()).then(setProviders, () => {});
  }, []);
  const signInAt = (issuer: string) => {
    if (!providers) return;
    import('./oidc')
      .then(({ startSignIn }) => startSignIn(providers, issuer, isPersistent))
      .catch((error) => setProblem(`${issuer}: ${error.message}`));
  };
  return (
    <main class="lone card">
      <Title text="Sign in to Tapegate" />
      {providers?.issuers.map((issuer) => (
        <p key={issuer}>
          <Button kind="main" onClick={() => signInAt(issuer)}>
            Sign in at {new URL(issuer).host}
          </Button>
        </p>
      ))}
      <TokenForm onToken={(token) => storeToken({ token }, isPersistent)}>
        <label class="check">
          <input
            type="checkbox"
            checked={isPersistent}
            onChange={(event) => setPersistent(event.currentTarget.checked)}
          />
          Stay signed in on this computer
        </label>
        <Refused why={problem} />
      </TokenForm>
      <p class="hint">
        Operators create tokens with <code>tapegate token create</code>.
      </p>
    </main>
  );
}

function TokenForm({ onToken, children }: { onToken(token: string): void; children: ComponentChildren }) {
  const [token, setToken] = useState('');
  const enter = (event: Event) => {
    event.preventDefault();
    const given = token.trim();
    if (given) onToken(given);
  };
  return (
    <form onSubmit={enter}>
      <label>
        Token
        <input
          type="password"
          autocomplete="current-password"
          required
          value={token}
          onInput={(event) => setToken(event.currentTarget.value)}
        />
      </label>
      {children}
      <Button type="submit" kind="main" icon={LogIn}>
        Sign in
      </Button>
    </form>
  );
}
