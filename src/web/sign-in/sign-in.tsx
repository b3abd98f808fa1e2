/** The sign-in page, which the dashboard shows when the gateway requires a valid token. */
import { useEffect, useState } from 'preact/hooks';
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
    <main class="lone">
      <Title text="Tapegate" />
      {providers?.issuers.map((issuer) => (
        <p key={issuer}>
          <button type="button" class="button main" onClick={() => signInAt(issuer)}>
            Sign in at {new URL(issuer).host}
          </button>
        </p>
      ))}
      <TokenForm onToken={(token) => storeToken({ token }, isPersistent)} />
      <label class="check">
        <input
          type="checkbox"
          checked={isPersistent}
          onChange={(event) => setPersistent(event.currentTarget.checked)}
        />
        Stay signed in on this computer
      </label>
      <Refused why={problem} />
      <p class="hint">
        Operators create tokens with <code>tapegate token create</code>.
      </p>
    </main>
  );
}

function TokenForm({ onToken }: { onToken(token: string): void }) {
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
      <button type="submit" class="button">
        Sign in
      </button>
    </form>
  );
}
