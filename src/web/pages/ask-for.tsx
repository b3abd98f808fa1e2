/** Asks for files: first what it would take, then the request itself. */
import { useClient } from '@urql/preact';
import { useEffect, useState } from 'preact/hooks';
import { CreateRequestDocument, EstimateDocument, type EstimateQuery } from '../../generated/web-operations';
import { useCaller } from '../caller';
import { useDeed } from '../deeds';
import { count } from '../format';
import { Refused } from '../parts/problem';
import { QuotaChoice } from '../parts/quota-choice';
import { linkTo } from '../route';
import { EstimateTold } from './estimate';

interface AskForProps {
  match: string;
  matching: number;
  chosen: string[];
  onAsked(): void;
}

type Told = EstimateQuery['estimateRequest'];

export function AskFor({ match, matching, chosen, onAsked }: AskForProps) {
  const { name, quotas } = useCaller();
  const client = useClient();
  const deed = useDeed();
  const [quota, setQuota] = useState(quotas.find(({ user }) => user === name)?.user ?? quotas[0]?.user ?? '');
  const [label, setLabel] = useState('');
  const [told, setTold] = useState<{ key: string; estimate: Told }>();
  const [problem, setProblem] = useState<string>();
  const isChosen = chosen.length > 0;
  const what = isChosen ? { files: chosen } : { pattern: match };
  const key = JSON.stringify([quota, what]);
  const estimate = told?.key === key ? told.estimate : undefined;
  // what was told is of what was chosen then
  useEffect(() => setProblem(undefined), [key]);
  if (!isChosen && (match === '' || matching === 0)) {
    return <p class="hint">Type a part of a path, or choose files, to ask for them.</p>;
  }
  const price = async () => {
    const { data, error } = await client.query(
      EstimateDocument,
      { input: { quota, ...what } },
      { requestPolicy: 'network-only' },
    );
    setProblem(error?.message);
    if (data) setTold({ key, estimate: data.estimateRequest });
  };
  const ask = async () => {
    const done = await deed.run(CreateRequestDocument, { input: { quota, label, ...what } });
    if (done?.createRequest.__typename !== 'Request') return;
    onAsked();
    location.hash = linkTo(['requests', done.createRequest.requestId]);
  };
  return (
    <section class="ask-for" aria-labelledby="ask-for">
      <h2 id="ask-for">
        Ask for {isChosen ? count(chosen.length, 'chosen file') : `all with ${JSON.stringify(match)} in their path`}
      </h2>
      <div class="tools">
        <QuotaChoice value={quota} onChoose={setQuota} />
        <label>
          Label
          <input value={label} onInput={(event) => setLabel(event.currentTarget.value)} />
        </label>
        <button type="button" onClick={price}>
          What would it take?
        </button>
        {estimate?.__typename === 'Estimate' && (
          <button type="button" class="main" disabled={deed.isRunning || !estimate.isEnough} onClick={ask}>
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
