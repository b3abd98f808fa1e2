/** Asks who is there, where the gateway does not know it. */
import { useState } from 'preact/hooks';
import { Refused } from './parts/problem';
import { keepToken, readRefusal } from './session';

export function SignIn() {
  const [token, setToken] = useState('');
  const [isForLong, setForLong] = useState(false);
  const enter = (event: Event) => {
    event.preventDefault();
    const given = token.trim();
    if (given) keepToken(given, isForLong);
  };
  return (
    <main class="lone">
      <h1>Tapegate</h1>
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
        <label class="check">
          <input type="checkbox" checked={isForLong} onChange={(event) => setForLong(event.currentTarget.checked)} />
          Stay signed in on this computer
        </label>
        <Refused why={readRefusal()} />
        <button type="submit">Sign in</button>
      </form>
      <p class="hint">
        A token is made by an operator, or by yourself where you are signed in: <code>tapegate token create</code>.
      </p>
    </main>
  );
}
