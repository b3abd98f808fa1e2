import { Provider } from '@urql/preact';
import { useEffect, useState } from 'preact/hooks';
import { CallerGate } from './caller';
import { type Line, openClient } from './client';
import { Frame } from './frame';
import { watchSession } from './session';

/** Whoever signs in or out begins anew: nothing that one user was shown is there for the next. */
export function App() {
  const [round, setRound] = useState(0);
  useEffect(() => watchSession(() => setRound((before) => before + 1)), []);
  return <Connected key={round} />;
}

function Connected() {
  const [line, setLine] = useState<Line>('open');
  const [opened] = useState(() => openClient(setLine));
  useEffect(() => () => opened.close(), [opened]);
  return (
    <Provider value={opened.client}>
      <CallerGate>
        <Frame line={line} />
      </CallerGate>
    </Provider>
  );
}
