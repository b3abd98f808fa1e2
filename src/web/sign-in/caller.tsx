/**
 * Reads the signed-in user from the gateway. The user's permissions determine which views are shown. Only the gateway
 * enforces permissions.
 */
import { type ComponentChildren, createContext } from 'preact';
import { useContext, useEffect } from 'preact/hooks';
import { CallerWithQuotasDocument, type CallerWithQuotasQuery } from '../../generated/operations.js';
import { Problem } from '../parts/problem';
import { useViewQuery } from '../view-query';
import { dropToken, isSignedIn } from './session';
import { SignIn } from './sign-in';

export interface Caller {
  name: string;
  authentication: CallerWithQuotasQuery['caller']['authentication'];
  /** Whether the user can neither request files nor change requests, such as a viewer. */
  isReadOnly: boolean;
  isOperator: boolean;
  seesSite: boolean;
  /** The first hundred quotas that the user is allowed to use or see, ordered by name. */
  quotas: { user: string; size: bigint; used: bigint }[];
}

const CallerContext = createContext<Caller | undefined>(undefined);

export function useCaller(): Caller {
  const caller = useContext(CallerContext);
  if (!caller) throw new Error('useCaller must be called in a component inside a CallerGate');
  return caller;
}

export function CallerGate({ children }: { children: ComponentChildren }) {
  const { data, error, isFetching, again } = useViewQuery(CallerWithQuotasDocument, {});
  // remove an invalid token: a gateway that accepts anonymous callers ignores the token and does not return an error
  const isIgnored = data?.caller.authentication === 'OPEN' && isSignedIn();
  useEffect(() => {
    if (isIgnored) dropToken('This token is not valid.');
  }, [isIgnored]);
  if (error?.response?.status === 401) return <SignIn />;
  if (data && !isIgnored) return <CallerContext.Provider value={toCaller(data)}>{children}</CallerContext.Provider>;
  if (isFetching || !error) return <p class="lone">…</p>;
  return (
    <main class="lone">
      <Problem error={error} again={again} />
    </main>
  );
}

function toCaller({ caller, quotas }: CallerWithQuotasQuery): Caller {
  const isOperator = caller.roles.includes('OPERATOR');
  return {
    name: caller.name,
    authentication: caller.authentication,
    isReadOnly: caller.isReadOnly || !caller.roles.some((role) => role !== 'VIEWER'),
    isOperator,
    seesSite: isOperator || caller.roles.includes('VIEWER'),
    quotas: (quotas?.edges ?? []).map(({ node }) => node),
  };
}
