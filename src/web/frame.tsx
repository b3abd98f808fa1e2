/** The frame around every view: the navigation, the user, and the state of the connection to the gateway. */
import type { JSX } from 'preact';
import { useEffect, useRef } from 'preact/hooks';
import { FenceDocument } from '../generated/operations.js';
import type { ConnectionState } from './graphql-client';
import { useRequestChanges } from './live-site';
import { FilesPage } from './pages/files';
import { QuotasPage } from './pages/quotas';
import { RequestPage } from './pages/request';
import { RequestsPage } from './pages/requests';
import { AuditPage } from './pages/site-audit';
import { CurvesPage, ProcessesPage } from './pages/site-curves';
import { FailuresPage, SuspensionsPage, UsersPage } from './pages/site-people';
import { PlanPage } from './pages/site-plan';
import { DisksPage, LibrariesPage, VolumesPage } from './pages/site-storage';
import { Title } from './parts/title';
import { linkTo, replaceRoute, useRoute } from './route';
import { useCaller } from './sign-in/caller';
import { dropToken, isSignedIn } from './sign-in/session';
import { SignIn } from './sign-in/sign-in';
import { useViewQuery } from './view-query';

interface View {
  name: string;
  title: string;
  /** @param rest the parts of the address after the name of the view */
  show(rest: string[]): JSX.Element;
  isForSite?: boolean;
  isForOperators?: boolean;
}

const views: View[] = [
  { name: 'files', title: 'Files', show: () => <FilesPage /> },
  {
    name: 'requests',
    title: 'Requests',
    show: ([id]) => (id === undefined ? <RequestsPage /> : <RequestPage key={id} id={id} />),
  },
  { name: 'quotas', title: 'Quotas', show: ([user]) => <QuotasPage user={user} /> },
  { name: 'plan', title: 'Drives and queue', show: () => <PlanPage />, isForSite: true },
  { name: 'curves', title: 'Charts', show: () => <CurvesPage />, isForSite: true },
  { name: 'volumes', title: 'Volumes', show: () => <VolumesPage />, isForSite: true },
  { name: 'disks', title: 'Disks', show: () => <DisksPage />, isForSite: true },
  { name: 'libraries', title: 'Libraries', show: () => <LibrariesPage />, isForSite: true },
  { name: 'suspensions', title: 'Out of service', show: () => <SuspensionsPage />, isForSite: true },
  { name: 'users', title: 'Users', show: () => <UsersPage />, isForSite: true },
  { name: 'failures', title: 'Failures', show: () => <FailuresPage />, isForSite: true },
  { name: 'processes', title: 'Processes', show: () => <ProcessesPage />, isForSite: true },
  { name: 'audit', title: 'Audit', show: () => <AuditPage />, isForSite: true, isForOperators: true },
];

/**
 * Ignores events. The frame subscribes to events only because a lost connection ends the subscription, even in a view
 * without live data.
 */
const ignore = () => {};

export function Frame({ connection }: { connection: ConnectionState }) {
  const caller = useCaller();
  const { parts, search } = useRoute();
  useRequestChanges(ignore);
  if (parts[0] === 'sign-in') return isSignedIn() ? <SignedIn from={search.get('from') ?? '#/'} /> : <SignIn />;
  const shown = views.filter((view) => (view.isForOperators ? caller.isOperator : !view.isForSite || caller.seesSite));
  const view = shown.find(({ name }) => name === (parts[0] ?? 'files'));
  return (
    <>
      <button type="button" class="skip" onClick={() => document.getElementById('main')?.focus()}>
        Skip to the content
      </button>
      <header>
        <a class="brand" href="#/">
          Tapegate
        </a>
        <Views label="Views" views={shown.filter(({ isForSite }) => !isForSite)} current={view} />
        <CurrentUser />
        {caller.seesSite && <Views label="Site" views={shown.filter(({ isForSite }) => isForSite)} current={view} />}
      </header>
      <p class="line" role="status">
        {CONNECTION_TEXTS[connection]}
      </p>
      <Fence />
      <Main path={parts.join('/')}>
        {view ? view.show(parts.slice(1)) : <Title text="This page does not exist." />}
      </Main>
    </>
  );
}

const CONNECTION_TEXTS: Readonly<Record<ConnectionState, string>> = {
  open: '',
  broken: 'The connection to the gateway is lost: this page may be out of date. Reconnecting …',
  intercepted:
    'Another server responds instead of the gateway: this page may be out of date. Reload the page. You may have to log in again.',
};

function SignedIn({ from }: { from: string }) {
  useEffect(() => replaceRoute(from.startsWith('#') ? from : '#/'), [from]);
  return null;
}

const FENCE_MS = 10_000;

function Fence() {
  const { data, again } = useViewQuery(FenceDocument, {});
  useEffect(() => {
    const timer = setInterval(again, FENCE_MS);
    return () => clearInterval(timer);
  }, [again]);
  if (!data?.fence) return null;
  return (
    <p class="line" role="alert">
      This Tapegate is fenced: {data.fence.reason}. It accepts requests, but does not restore files, remove files or
      send messages until an operator runs “tapegate takeover”.
    </p>
  );
}

function Views({ label, views, current }: { label: string; views: readonly View[]; current: View | undefined }) {
  return (
    <nav aria-label={label}>
      {views.map(({ name, title }) => (
        <a key={name} href={linkTo([name])} aria-current={current?.name === name ? 'page' : undefined}>
          {title}
        </a>
      ))}
    </nav>
  );
}

/** Moves the focus to a new view, so that a screen reader reads the title of the view. */
function Main({ path, children }: { path: string; children: JSX.Element }) {
  const main = useRef<HTMLElement>(null);
  const before = useRef(path);
  useEffect(() => {
    if (before.current !== path) main.current?.focus();
    before.current = path;
  }, [path]);
  return (
    <main id="main" tabIndex={-1} ref={main}>
      {children}
    </main>
  );
}

function CurrentUser() {
  const { name, isOperator, authentication } = useCaller();
  const isUnknown = authentication === 'OPEN' || authentication === 'LEGACY';
  return (
    <div class="who">
      <span>
        {name || authentication.toLowerCase()}
        {isOperator && ' (operator)'}
      </span>
      {isSignedIn() ? (
        <button type="button" class="plain" onClick={() => dropToken()}>
          Sign out
        </button>
      ) : (
        isUnknown && <a href={linkTo(['sign-in'], { from: location.hash })}>Sign in</a>
      )}
    </div>
  );
}
