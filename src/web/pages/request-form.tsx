/** The form for a new request. Shows an estimate before the user requests the files. */
import { useClient } from '@urql/preact';
import type { ComponentChildren } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { CreateRequestDocument, type EstimateFragment, EstimateRequestDocument } from '../../generated/operations.js';
import { useAction } from '../actions';
import { count } from '../format';
import { messageOf, Refused } from '../parts/problem';
import { QuotaChoice } from '../parts/quota-choice';
import { linkTo } from '../route';
import { useCaller } from '../sign-in/caller';
import { EstimateSummary } from './estimate';
import { inputOf, noOptions, OptionFields } from './request-options';

interface RequestFormProps {
  match: string;
  matching: number;
  chosen: string[];
  onRequested(): void;
  children?: ComponentChildren;
}

export function RequestForm({ match, matching, chosen, onRequested, children }: RequestFormProps) {
  const { name, quotas } = useCaller();
  const action = useAction();
  const [quota, setQuota] = useState(quotas.find(({ user }) => user === name)?.user ?? quotas[0]?.user ?? '');
  const [options, setOptions] = useState(noOptions);
  const isChosen = chosen.length > 0;
  const what = { quota, ...(isChosen ? { files: chosen } : { pattern: match }) };
  const { estimate, problem, runEstimate } = useEstimate(what);
  if (!isChosen && (match === '' || matching === 0)) {
    return <p class="hint">To request files, type part of a path or select files.</p>;
  }
  const ask = async () => {
    const done = await action.run(CreateRequestDocument, { input: { ...what, ...inputOf(options) } });
    const created = done?.result?.value;
    if (!created) return;
    onRequested();
    location.hash = linkTo(['requests', created.requestId]);
  };
  return (
    <section class="request-form" aria-labelledby="request-form">
      <h2 id="request-form">
        Request{' '}
        {isChosen ? count(chosen.length, 'selected file') : `all files with ${JSON.stringify(match)} in their path`}
      </h2>
      {children}
      <div class="tools">
        <QuotaChoice value={quota} onChoose={setQuota} />
        <OptionFields options={options} onChange={setOptions} />
        <button type="button" class="button" onClick={runEstimate}>
          Estimate
        </button>
        {estimate && (
          <button
            type="button"
            class="button main"
            disabled={action.isRunning || !inputOf(options) || !estimate.fitsQuota}
            onClick={ask}
          >
            Restore {count(estimate.fileCount, 'file')}
          </button>
        )}
      </div>
      {quotas.length === 0 && <p>You have no quota: ask an operator for one.</p>}
      {estimate && <EstimateSummary estimate={estimate} />}
      <Refused why={action.problem ?? problem} />
    </section>
  );
}

/** Estimates a request. The estimate is valid until the user changes the request. */
function useEstimate(what: { quota: string; files: string[] } | { quota: string; pattern: string }) {
  const client = useClient();
  const [result, setResult] = useState<{ key: string; estimate: EstimateFragment }>();
  const [problem, setProblem] = useState<string>();
  const key = JSON.stringify(what);
  useEffect(() => setProblem(undefined), [key]);
  const runEstimate = async () => {
    const { data, error } = await client.query(
      EstimateRequestDocument.toString(),
      { input: what },
      { requestPolicy: 'network-only' },
    );
    const { value: found, errors } = data?.result ?? { errors: [] };
    setProblem(error ? messageOf(error) : errors[0]?.message);
    if (found) setResult({ key, estimate: found });
  };
  return { estimate: result?.key === key ? result.estimate : undefined, problem, runEstimate };
}
