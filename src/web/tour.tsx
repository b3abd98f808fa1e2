/** A short tour of the demo archive for new users: choose files, watch the request, download. */
import { useEffect, useState } from 'preact/hooks';
import { DirectoryDocument } from '../generated/operations.js';
import { Button } from './parts/button';
import { useRoute } from './route';
import { useCaller } from './sign-in/caller';
import { useViewQuery } from './view-query';

const KEY = 'tapegate.tour';
const DONE = 'done';

/** The only directory at the root of the demo archive. */
const DEMO = '/demo';

interface Step {
  title: string;
  text: string;
  /** Link to the view in which the step begins. */
  href: string;
  /** Text of the link. */
  show: string;
}

const steps: readonly Step[] = [
  {
    title: 'Request files',
    text: 'Select a folder or some files, then choose Request. The dialog shows when the files will arrive, before you confirm.',
    href: '#/files',
    show: 'Show the files',
  },
  {
    title: 'Watch the request',
    text: "A request's page shows its progress and when its files will arrive. The request continues if you close the page.",
    href: '#/requests',
    show: 'Show my requests',
  },
  {
    title: 'Download the files',
    text: 'When files are on disk, select them in the list, and download them as one zip archive.',
    href: '#/requests',
    show: 'Show my requests',
  },
];

/** Shows the tour until the user has finished or closed it. */
export function Tour() {
  const { isReadOnly } = useCaller();
  const [isDone, setDone] = useState(() => localStorage.getItem(KEY) === DONE);
  if (isDone || isReadOnly) return null;
  const finish = () => {
    localStorage.setItem(KEY, DONE);
    setDone(true);
  };
  return <DemoTour onDone={finish} />;
}

function DemoTour({ onDone }: { onDone(): void }) {
  const { data } = useViewQuery(DirectoryDocument, { path: '/' });
  const entries = data?.directory?.entries?.edges;
  const isDemo = entries?.length === 1 && entries[0]?.node.path === DEMO;
  return isDemo ? <Steps onDone={onDone} /> : null;
}

function Steps({ onDone }: { onDone(): void }) {
  const { parts } = useRoute();
  const [at, setAt] = useState(0);
  const isRequest = parts[0] === 'requests' && parts.length > 1;
  useEffect(() => {
    if (isRequest) setAt((before) => Math.max(before, 1));
  }, [isRequest]);
  const step = steps[at];
  if (!step) return null;
  const isLast = at === steps.length - 1;
  return (
    <aside class="tour note" aria-label="Tour">
      <h2>
        {step.title}{' '}
        <small>
          {at + 1} of {steps.length}
        </small>
      </h2>
      <p>{step.text}</p>
      {!(isRequest || step.href === `#/${parts[0] ?? 'files'}`) && <a href={step.href}>{step.show}</a>}
      {!isLast && <Button onClick={() => setAt(at + 1)}>Next</Button>}
      <Button kind={isLast ? 'main' : 'plain'} onClick={onDone}>
        {isLast ? 'Finish' : 'Close the tour'}
      </Button>
    </aside>
  );
}
