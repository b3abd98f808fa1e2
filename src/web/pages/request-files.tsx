/** The files of a request, and how it goes with each. */
import type { HoldState } from '../../generated/web-operations';
import { formatBytes } from '../format';
import { CopyButton } from '../parts/copy-button';
import { Download } from '../parts/download';
import { Moment } from '../parts/moment';
import { Pages, type Places } from '../parts/pages';
import { isOver } from '../parts/state';
import { Wide } from '../parts/wide';
import type { ShownRequest } from './request';

const names: Record<HoldState, string> = {
  ON_DISK: 'On disk',
  WAITING: 'Waiting',
  FAILED: 'Failed',
  RELEASED: 'Let go',
};

/** Of a request that has ended: what it has is its own no more, and what it lacks comes no more. */
const namesThen: Record<HoldState, string> = { ...names, ON_DISK: 'Was on disk', WAITING: 'Not restored' };

interface RequestFilesProps {
  request: ShownRequest;
  states: HoldState[] | undefined;
  places: Places;
  onStates(states: HoldState[] | undefined): void;
}

export function RequestFiles({ request, states, places, onStates }: RequestFilesProps) {
  const holds = request.holds.edges.map(({ node }) => node);
  const hasEnded = isOver(request.state);
  const onDisk = hasEnded ? [] : holds.flatMap(({ file }) => file.restoredPath ?? []);
  return (
    <section aria-labelledby="files">
      <h2 id="files">Files</h2>
      <div class="tools">
        <label>
          Show
          <select value={states?.[0] ?? ''} onChange={(event) => onStates(readState(event.currentTarget.value))}>
            <option value="">all</option>
            {Object.entries(hasEnded ? namesThen : names).map(([state, name]) => (
              <option key={state} value={state}>
                {name.toLowerCase()}
              </option>
            ))}
          </select>
        </label>
        {onDisk.length > 0 && <CopyButton text={onDisk.join('\n')} name="Copy the paths on disk shown here" />}
      </div>
      <Wide label="Files of the request">
        <table class="stacked">
          <thead>
            <tr>
              <th scope="col">Path</th>
              <th scope="col" class="number">
                Size
              </th>
              <th scope="col">State</th>
            </tr>
          </thead>
          <tbody>
            {holds.map((hold) => (
              <HoldRow key={hold.file.id} hold={hold} hasEnded={hasEnded} />
            ))}
          </tbody>
        </table>
      </Wide>
      <Pages places={places} info={request.holds.pageInfo} />
    </section>
  );
}

type Hold = ShownRequest['holds']['edges'][number]['node'];

function HoldRow({ hold, hasEnded }: { hold: Hold; hasEnded: boolean }) {
  const { file, size, state, error, lastError, nextTry } = hold;
  const why = error ?? lastError;
  return (
    <tr>
      <th scope="row">
        <code>{hasEnded ? file.path : (file.restoredPath ?? file.path)}</code>
      </th>
      <td class="number">{formatBytes(size)}</td>
      <td>
        <span class={`state ${state.toLowerCase()}`}>{(hasEnded ? namesThen : names)[state]}</span>
        {file.bytesPath && !hasEnded && <Download bytesPath={file.bytesPath} path={file.path} />}
        {why && <p class="why">{why}</p>}
        {nextTry && (
          <p class="why">
            Tried again <Moment at={nextTry} side="ahead" />
          </p>
        )}
      </td>
    </tr>
  );
}

const readState = (value: string): HoldState[] | undefined => (value === '' ? undefined : [value as HoldState]);
