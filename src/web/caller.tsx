/** Who uses the page: the gateway says it, and what the page shows follows from it. What a caller may do is decided there, not here. */
import { type ComponentChildren, createContext } from 'preact';
import { useContext } from 'preact/hooks';
import { CallerDocument, type CallerQuery } from '../generated/web-operations';
import { useLook } from './look';
import { Problem } from './parts/problem';
import { SignIn } from './sign-in';

export interface Caller {
  name: string;
  way: string;
  isReadOnly: boolean;
  isOperator: boolean;
  /** May see all that operators see. */
  seesSite: boolean;
  /** Quotas that may be used, or seen, the first hundred by name. */
  quotas: { user: string; size: string; used: string }[];
}

const CallerContext = createContext<Caller | undefined>(undefined);

export function useCaller(): Caller {
  const caller = useContext(CallerContext);
  if (!caller) throw new Error('the caller is not known here');
  return caller;
}

export function CallerGate({ children }: { children: ComponentChildren }) {
  const { data, error, isFetching, again } = useLook(CallerDocument, {});
  if (error?.response?.status === 401) return <SignIn />;
  if (data) return <CallerContext.Provider value={toCaller(data)}>{children}</CallerContext.Provider>;
  if (isFetching || !error) return <p class="lone">…</p>;
  return (
    <main class="lone">
      <Problem error={error} again={again} />
    </main>
  );
}

function toCaller({ caller, quotas }: CallerQuery): Caller {
  const isOperator = caller.roles.includes('operator');
  return {
    name: caller.name,
    way: caller.way,
    isReadOnly: caller.isReadOnly,
    isOperator,
    seesSite: isOperator || caller.roles.includes('viewer'),
    quotas: quotas.edges.map(({ node }) => node),
  };
}
