/** The frame around every view: the navigation, the user, and the state of the connection to the gateway. */

import type { JSX } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { FenceDocument } from '../generated/operations.js';
import type { ConnectionState } from './graphql-client';
import { KeyboardHelp } from './keyboard';
import { useRequestChanges } from './live-site';
import { Button } from './parts/button';
import { Empty } from './parts/empty';
import {
  ChevronDown,
  CircleHelp,
  CircleUser,
  Compass,
  LayoutDashboard,
  LogOut,
  Monitor,
  Moon,
  Sun,
} from './parts/icons';
import { Menu } from './parts/menu';
import { Title } from './parts/title';
import { ToastProvider } from './parts/toast';
import { linkTo, replaceRoute, useRoute } from './route';
import { useCaller } from './sign-in/caller';
import { dropToken, isSignedIn } from './sign-in/session';
import { SignIn } from './sign-in/sign-in';
import { chooseTheme, readTheme, type Theme } from './theme';
import { Tour } from './tour';
import { useViewQuery } from './view-query';
import { type View, views } from './views';

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
  const siteViews = shown.filter(({ isForSite }) => isForSite);
  return (
    <ToastProvider>
      <Header views={shown} current={view} />
      <p class="line" role="status">
        {CONNECTION_TEXTS[connection]}
      </p>
      <Fence />
      <Tour />
      <div class={`frame${view?.isForSite ? ' with-site' : ''}`}>
        {view?.isForSite && <SiteNavigation views={siteViews} current={view} />}
        <Main path={parts.join('/')}>{view ? view.show(parts.slice(1)) : <NoSuchPage />}</Main>
      </div>
    </ToastProvider>
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

function NoSuchPage() {
  return (
    <>
      <Title text="This page does not exist." />
      <Empty icon={Compass} title="There is nothing at this address">
        <p>
          Go to your <a href="#/files">files</a>, your <a href="#/requests">requests</a> or your{' '}
          <a href="#/quotas">quotas</a>.
        </p>
      </Empty>
    </>
  );
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

interface NavigationProps {
  views: readonly View[];
  current: View | undefined;
}

function Header({ views, current }: NavigationProps) {
  const { seesSite } = useCaller();
  const first = views.find(({ isForSite }) => isForSite);
  return (
    <>
      <button type="button" class="button skip" onClick={() => document.getElementById('main')?.focus()}>
        Skip to the content
      </button>
      <header class="frame-header">
        <a class="brand" href="#/" aria-label="Tapegate">
          <img src="./icon.svg" alt="" width={24} height={24} />
          <span>Tapegate</span>
        </a>
        <nav aria-label="Views">
          {views
            .filter(({ isForSite }) => !isForSite)
            .map((view) => (
              <ViewLink key={view.name} view={view} isCurrent={view === current} />
            ))}
          {seesSite && first && (
            <a class="view-link" href={linkTo([first.name])} aria-current={current?.isForSite ? 'true' : undefined}>
              <LayoutDashboard class="icon" size={16} aria-hidden="true" />
              Site
            </a>
          )}
        </nav>
        <FrameTools />
      </header>
    </>
  );
}

function ViewLink({ view: { name, title, icon: Icon }, isCurrent }: { view: View; isCurrent: boolean }) {
  return (
    <a class="view-link" href={linkTo([name])} aria-current={isCurrent ? 'page' : undefined}>
      <Icon class="icon" size={16} aria-hidden="true" />
      {title}
    </a>
  );
}

/** Views of the site: a list at the side of a wide window, a menu in a narrow one. */
function SiteNavigation({ views, current }: NavigationProps) {
  return (
    <>
      <nav class="site-nav" aria-label="Site">
        {views.map((view) => (
          <ViewLink key={view.name} view={view} isCurrent={view === current} />
        ))}
      </nav>
      <div class="site-choice">
        <Menu
          label={`${current?.title ?? 'Site'}: views of the site`}
          icon={ChevronDown}
          items={views.map(({ name, title, icon }) => ({
            text: title,
            icon,
            onSelect: () => {
              location.hash = linkTo([name]);
            },
          }))}
        >
          {current?.title}
        </Menu>
      </div>
    </>
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

const themes: Record<Theme, [text: string, icon: typeof Sun]> = {
  system: ['System', Monitor],
  light: ['Light', Sun],
  dark: ['Dark', Moon],
};

function FrameTools() {
  const [isHelpOpen, setHelpOpen] = useState(false);
  const [theme, setTheme] = useState(readTheme);
  const choose = (chosen: Theme) => {
    chooseTheme(chosen);
    setTheme(chosen);
  };
  const items = (Object.keys(themes) as Theme[]).map((name) => {
    const [text, icon] = themes[name];
    return { text, icon, isChecked: name === theme, onSelect: () => choose(name) };
  });
  return (
    <div class="frame-tools">
      <span class="keyboard">
        <Button kind="bare" icon={CircleHelp} label="Keyboard shortcuts" onClick={() => setHelpOpen(true)} />
      </span>
      <Menu label="Theme" icon={themes[theme][1]} items={items} />
      <CurrentUser />
      <KeyboardHelp isOpen={isHelpOpen} onOpen={() => setHelpOpen(true)} onClose={() => setHelpOpen(false)} />
    </div>
  );
}

function CurrentUser() {
  const { name, isOperator, authentication } = useCaller();
  const isUnknown = authentication === 'OPEN' || authentication === 'LEGACY';
  const shown = isUnknown ? 'Not signed in' : name || authentication.toLowerCase();
  return (
    <>
      <span class="user-name" title={isOperator ? `${shown} (operator)` : shown}>
        <CircleUser class="icon" size={16} aria-hidden="true" /> {shown}
        {isOperator && ' (operator)'}
      </span>
      {isSignedIn() ? (
        <Button kind="bare" icon={LogOut} label="Sign out" onClick={() => dropToken()}>
          <span class="label">Sign out</span>
        </Button>
      ) : (
        isUnknown && <a href={linkTo(['sign-in'], { from: location.hash })}>Sign in</a>
      )}
    </>
  );
}
