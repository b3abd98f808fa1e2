/** Asks who is there, where the gateway does not know it. */
import { useEffect, useState } from 'preact/hooks';
import type { Providers } from './oidc';
import { Refused } from './parts/problem';
import { Title } from './parts/title';
import { keepToken, readRefusal } from './session';

export function SignIn() {
  const [providers, setProviders] = useState<Providers>();
  const [problem, setProblem] = useState(readRefusal());
  const [isForLong, setForLong] = useState(false);
  useEffect(() => {
    import('./oidc').then(({ findProviders }) => findProviders()).then(setProviders, () => {}); // a token can still be shown
  }, []);
  const leave = (issuer: string) => {
    if (!providers) return;
    import('./oidc')
      .then(({ startSignIn }) => startSignIn(providers, issuer, isForLong))
      .catch((error) => setProblem(`${issuer}: ${error.message}`));
  };
  return (
    <main class="lone">
      <Title text="Tapegate" />
      {providers?.issuers.map((issuer) => (
        <p key={issuer}>
          <button type="button" class="main" onClick={() => leave(issuer)}>
            Sign in at {new URL(issuer).host}
          </button>
        </p>
      ))}
      <TokenForm onToken={(token) => keepToken({ token }, isForLong)} />
      <label class="check">
        <input type="checkbox" checked={isForLong} onChange={(event) => setForLong(event.currentTarget.checked)} />
        Stay signed in on this computer
      </label>
      <Refused why={problem} />
      <p class="hint">
        A token is made by an operator: <code>tapegate token create</code>.
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
      <button type="submit">Sign in</button>
    </form>
  );
}
