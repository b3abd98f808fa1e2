/** Asks for files: first what it would take, then the request itself. */
import { useClient } from '@urql/preact';
import type { ComponentChildren } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { CreateRequestDocument, EstimateDocument, type EstimateQuery } from '../../generated/web-operations';
import { useCaller } from '../caller';
import { useDeed } from '../deeds';
import { count } from '../format';
import { messageOf, Refused } from '../parts/problem';
import { QuotaChoice } from '../parts/quota-choice';
import { linkTo } from '../route';
import { EstimateTold } from './estimate';
import { inputOf, noWishes, Wishes } from './wishes';

interface AskForProps {
  match: string;
  matching: number;
  chosen: string[];
  onAsked(): void;
  /** Which files these are. */
  children?: ComponentChildren;
}

type Told = EstimateQuery['estimateRequest'];

export function AskFor({ match, matching, chosen, onAsked, children }: AskForProps) {
  const { name, quotas } = useCaller();
  const deed = useDeed();
  const [quota, setQuota] = useState(quotas.find(({ user }) => user === name)?.user ?? quotas[0]?.user ?? '');
  const [wishes, setWishes] = useState(noWishes);
  const isChosen = chosen.length > 0;
  const what = { quota, ...(isChosen ? { files: chosen } : { pattern: match }) };
  const { estimate, problem, price } = usePrice(what);
  if (!isChosen && (match === '' || matching === 0)) {
    return <p class="hint">Type a part of a path, or choose files, to ask for them.</p>;
  }
  const ask = async () => {
    const done = await deed.run(CreateRequestDocument, { input: { ...what, ...inputOf(wishes) } });
    if (done?.createRequest.__typename !== 'Request') return;
    onAsked();
    location.hash = linkTo(['requests', done.createRequest.requestId]);
  };
  return (
    <section class="ask-for" aria-labelledby="ask-for">
      <h2 id="ask-for">
        Ask for {isChosen ? count(chosen.length, 'chosen file') : `all with ${JSON.stringify(match)} in their path`}
      </h2>
      {children}
      <div class="tools">
        <QuotaChoice value={quota} onChoose={setQuota} />
        <Wishes wishes={wishes} onChange={setWishes} />
        <button type="button" onClick={price}>
          What would it take?
        </button>
        {estimate?.__typename === 'Estimate' && (
          <button
            type="button"
            class="main"
            disabled={deed.isRunning || !inputOf(wishes) || !estimate.isEnough}
            onClick={ask}
          >
            Restore {count(estimate.files, 'file')}
          </button>
        )}
      </div>
      {quotas.length === 0 && <p>There is no quota that you may use: an operator can give you one.</p>}
      {estimate && <EstimateTold estimate={estimate} />}
      <Refused why={deed.problem ?? problem} />
    </section>
  );
}

/** What it would take, once that was asked of just this. */
function usePrice(what: { quota: string; files: string[] } | { quota: string; pattern: string }) {
  const client = useClient();
  const [told, setTold] = useState<{ key: string; estimate: Told }>();
  const [problem, setProblem] = useState<string>();
  const key = JSON.stringify(what);
  useEffect(() => setProblem(undefined), [key]);
  const price = async () => {
    const { data, error } = await client.query(EstimateDocument, { input: what }, { requestPolicy: 'network-only' });
    setProblem(error && messageOf(error));
    if (data) setTold({ key, estimate: data.estimateRequest });
  };
  return { estimate: told?.key === key ? told.estimate : undefined, problem, price };
}
