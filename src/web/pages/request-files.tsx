/** The files of a request, and how it goes with each. */
import type { HoldState } from '../../generated/web-operations';
import { formatBytes } from '../format';
import { CopyButton } from '../parts/copy-button';
import { Download } from '../parts/download';
import { Moment } from '../parts/moment';
import { Pages, type Places } from '../parts/pages';
import { isOver } from '../parts/state';
import { type Column, Table } from '../parts/table';
import type { ShownRequest } from './shown-request';

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
      <Table
        label="Files of the request"
        columns={hasEnded ? columnsThen : columns}
        rows={holds}
        keyOf={({ file }) => file.id}
        isStacked
      />
      <Pages places={places} info={request.holds.pageInfo} />
    </section>
  );
}

type Hold = ShownRequest['holds']['edges'][number]['node'];

function columnsOf(hasEnded: boolean): Column<Hold>[] {
  return [
    { title: 'Path', cell: ({ file }) => <code>{hasEnded ? file.path : (file.restoredPath ?? file.path)}</code> },
    { title: 'Size', isNumber: true, cell: ({ size }) => formatBytes(size) },
    { title: 'State', cell: (hold) => <HoldStateTold hold={hold} hasEnded={hasEnded} /> },
  ];
}

const columns = columnsOf(false);
const columnsThen = columnsOf(true);

function HoldStateTold({ hold, hasEnded }: { hold: Hold; hasEnded: boolean }) {
  const { file, state, error, lastError, nextTry } = hold;
  const why = error ?? lastError;
  return (
    <>
      <span class={`state ${state.toLowerCase()}`}>{(hasEnded ? namesThen : names)[state]}</span>
      {file.bytesPath && !hasEnded && <Download bytesPath={file.bytesPath} path={file.path} />}
      {why && <p class="why">{why}</p>}
      {nextTry && (
        <p class="why">
          Tried again <Moment at={nextTry} side="ahead" />
        </p>
      )}
    </>
  );
}

const readState = (value: string): HoldState[] | undefined => (value === '' ? undefined : [value as HoldState]);
