/** The dialog for a new request: quota, options and the estimate. */
import { useId, useState } from 'preact/hooks';
import {
  CreateRequestDocument,
  type CreateRequestInput,
  type EstimateFragment,
} from '../../../generated/operations.js';
import { useAction } from '../../actions';
import { count, formatBytes } from '../../format';
import { Button } from '../../parts/button';
import { Dialog } from '../../parts/dialog';
import { EmailNote } from '../../parts/email-note';
import { Refused } from '../../parts/problem';
import { dateIn, endOfDay, refuseDate, UntilField } from '../../parts/until-field';
import { linkTo } from '../../route';
import { useCaller } from '../../sign-in/caller';
import { EstimateSummary, useEstimate, type Wanted } from './estimate';

interface RequestDialogProps {
  wanted: Wanted;
  /** Whether the user asked only for the estimate. The options are hidden until the user wants to request the files. */
  isEstimate: boolean;
  onRequested(): void;
  onClose(): void;
}

export function RequestDialog({ wanted, isEstimate: isFirstEstimate, onRequested, onClose }: RequestDialogProps) {
  const { name, quotas } = useCaller();
  const action = useAction();
  const [isEstimate, setEstimate] = useState(isFirstEstimate);
  const [quota, setQuota] = useState(quotas.find(({ user }) => user === name)?.user ?? quotas[0]?.user ?? '');
  const [options, setOptions] = useState<Options>(() => ({ ...noOptions, until: dateIn(DEFAULT_DAYS) }));
  const { estimate, problem, isRunning } = useEstimate(quota, wanted);
  const request = async () => {
    const input = { quota, ...wanted, ...inputOf(options) };
    const done = await action.run(CreateRequestDocument, { input });
    const created = done?.result?.value;
    if (!created) return;
    onRequested();
    location.hash = linkTo(['requests', created.requestId]);
  };
  const reason = action.isRunning ? 'The request is being created.' : reasonOf(quota, options, estimate, problem);
  const number = estimate?.fileCount ?? ('files' in wanted ? wanted.files.length : undefined);
  const what = number === undefined ? 'files' : count(number, 'file');
  return (
    <Dialog
      title={isEstimate ? `Estimate for ${what}` : `Request ${what}`}
      onClose={onClose}
      footer={
        <>
          <Button onClick={onClose}>{isEstimate ? 'Close' : 'Cancel'}</Button>
          {isEstimate ? (
            <Button kind="main" onClick={() => setEstimate(false)}>
              Continue to the request
            </Button>
          ) : (
            <Button kind="main" onClick={request} disabledReason={reason}>
              Request {what}
            </Button>
          )}
        </>
      }
    >
      {'pattern' in wanted && (
        <p>
          All files whose path contains <code>{wanted.pattern}</code>, including files added to the catalogue later.
        </p>
      )}
      <div class="request-fields">
        <QuotaField value={quota} estimate={estimate} onChoose={setQuota} />
        {!isEstimate && <OptionFields options={options} onChange={setOptions} />}
      </div>
      <EstimateSummary estimate={estimate} isRunning={isRunning} />
      <Refused why={action.problem ?? problem} />
    </Dialog>
  );
}

/** Returns why the files cannot be requested now; undefined if they can. */
function reasonOf(
  quota: string,
  options: Options,
  estimate: EstimateFragment | undefined,
  problem: string | undefined,
): string | undefined {
  if (quota === '') return 'You have no quota: ask an operator for one.';
  const refused = refuseDate(options.until) ?? refuseAddress(options);
  if (refused !== undefined) return refused;
  if (problem !== undefined) return problem;
  if (estimate && !estimate.fitsQuota) {
    return `Exceeds the quota by ${formatBytes(estimate.quotaUsedAfter - estimate.quotaSize)}.`;
  }
  if (estimate && estimate.fileCount + estimate.filesUnknown === 0) return 'No matching files.';
  return undefined;
}

interface QuotaFieldProps {
  value: string;
  estimate: EstimateFragment | undefined;
  onChoose(quota: string): void;
}

/** Lets the user select a quota, and shows the free space of each quota. */
function QuotaField({ value, estimate, onChoose }: QuotaFieldProps) {
  const { quotas } = useCaller();
  if (quotas.length === 0) return <p class="problem">You have no quota: ask an operator for one.</p>;
  return (
    <label>
      Quota
      <select value={value} onChange={(event) => onChoose(event.currentTarget.value)}>
        {quotas.map(({ user, size, used }) => {
          const usedNow = estimate?.user === user ? estimate.quotaUsed : used;
          return (
            <option key={user} value={user}>
              {user}: {formatBytes(size > usedNow ? size - usedNow : 0n)} of {formatBytes(size)} free
            </option>
          );
        })}
      </select>
    </label>
  );
}

/** The options of a new request, as the user typed them. */
interface Options {
  label: string;
  /** Date until which the files are kept on disk. */
  until: string;
  isMailed: boolean;
  /** Email address; empty to use the quota's address. */
  address: string;
}

const noOptions: Options = { label: '', until: '', isMailed: false, address: '' };

/** Days that a gateway keeps files on disk if a request has no retention. */
const DEFAULT_DAYS = 5;

/** Returns why an email address cannot be used; undefined if it can, or if it is empty. */
function refuseAddress({ isMailed, address }: Options): string | undefined {
  const isAddress = /^[^\s@]+@[^\s@]+$/.test(address.trim());
  return isMailed && address.trim() !== '' && !isAddress ? 'Enter an email address' : undefined;
}

function inputOf({ label, until, isMailed, address }: Options): Partial<CreateRequestInput> {
  return {
    ...(label.trim() && { label: label.trim() }),
    retention: endOfDay(until)?.toISOString(),
    ...(isMailed && { notifyOnLastFile: address.trim() }),
  };
}

function OptionFields({ options, onChange }: { options: Options; onChange(options: Options): void }) {
  const set = (change: Partial<Options>) => onChange({ ...options, ...change });
  const noteId = useId();
  const addressProblem = refuseAddress(options);
  return (
    <>
      <label>
        Label
        <input
          value={options.label}
          placeholder="Optional"
          onInput={(event) => set({ label: event.currentTarget.value })}
        />
      </label>
      <UntilField
        label="Keep on disk until the end of"
        value={options.until}
        problem={refuseDate(options.until)}
        hint={`Default: ${DEFAULT_DAYS} days`}
        onChange={(until) => set({ until })}
      />
      <div class="mail-fields">
        <label class="check">
          <input type="checkbox" checked={options.isMailed} onChange={() => set({ isMailed: !options.isMailed })} />
          Email when complete
        </label>
        {options.isMailed && <EmailNote />}
        {options.isMailed && (
          <label>
            Send to
            <input
              type="email"
              aria-invalid={addressProblem !== undefined}
              aria-describedby={addressProblem && noteId}
              placeholder="the quota's address"
              value={options.address}
              onInput={(event) => set({ address: event.currentTarget.value })}
            />
            {addressProblem && <strong id={noteId}>{addressProblem}</strong>}
          </label>
        )}
      </div>
    </>
  );
}
