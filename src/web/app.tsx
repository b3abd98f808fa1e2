import { Provider } from '@urql/preact';
import { useEffect, useState } from 'preact/hooks';
import { Frame } from './frame';
import { type ConnectionState, openClient } from './graphql-client';
import { CallerGate } from './sign-in/caller';
import { watchSession } from './sign-in/session';

/** The dashboard. Discards all state when a user signs in or out, so that no user sees another user's data. */
export function App() {
  const [round, setRound] = useState(0);
  useEffect(() => watchSession(() => setRound((before) => before + 1)), []);
  return <Connected key={round} />;
}

function Connected() {
  const [connection, setConnection] = useState<ConnectionState>('open');
  const [opened] = useState(() => openClient(setConnection));
  useEffect(() => () => opened.close(), [opened]);
  return (
    <Provider value={opened.client}>
      <CallerGate>
        <Frame connection={connection} />
      </CallerGate>
    </Provider>
  );
}
