/** Shows a request's files with their states. */
import type { RequestFileState } from '../../generated/operations.js';
import { formatBytes } from '../format';
import { CopyButton } from '../parts/copy-button';
import { Download } from '../parts/download';
import { Moment } from '../parts/moment';
import { Pages, type Paging } from '../parts/paging';
import { isOver } from '../parts/state';
import { type Column, Table } from '../parts/table';
import type { ShownRequest } from './shown-request';

const names: Record<RequestFileState, string> = {
  ON_DISK: 'On disk',
  WAITING: 'Waiting',
  FAILED: 'Failed',
  RELEASED: 'Released',
};

/** Names of file states in a request that has ended and no longer keeps its files on disk. */
const namesAfterEnd: Record<RequestFileState, string> = { ...names, ON_DISK: 'Was on disk', WAITING: 'Not restored' };

interface RequestFilesProps {
  request: ShownRequest;
  states: RequestFileState[] | undefined;
  paging: Paging;
  onStates(states: RequestFileState[] | undefined): void;
}

export function RequestFiles({ request, states, paging, onStates }: RequestFilesProps) {
  const files = request.files.edges.map(({ node }) => node);
  const hasEnded = isOver(request.state);
  const onDisk = hasEnded ? [] : files.flatMap(({ file }) => file.restoredPath ?? []);
  return (
    <section aria-labelledby="files">
      <h2 id="files">Files</h2>
      <div class="tools">
        <label>
          Show
          <select value={states?.[0] ?? ''} onChange={(event) => onStates(readState(event.currentTarget.value))}>
            <option value="">all</option>
            {Object.entries(hasEnded ? namesAfterEnd : names).map(([state, name]) => (
              <option key={state} value={state}>
                {name.toLowerCase()}
              </option>
            ))}
          </select>
        </label>
        {onDisk.length > 0 && <CopyButton text={onDisk.join('\n')} name="Copy the disk paths of these files" />}
      </div>
      <Table
        label="Files of the request"
        columns={hasEnded ? columnsAfterEnd : columns}
        rows={files}
        keyOf={({ file }) => file.path}
        isStacked
      />
      <Pages paging={paging} info={request.files.pageInfo} />
    </section>
  );
}

type RequestFile = ShownRequest['files']['edges'][number]['node'];

function columnsOf(hasEnded: boolean): Column<RequestFile>[] {
  return [
    { title: 'Path', cell: ({ file }) => <code>{hasEnded ? file.path : (file.restoredPath ?? file.path)}</code> },
    { title: 'Size', isNumber: true, cell: ({ size }) => formatBytes(size) },
    { title: 'State', cell: (requestFile) => <FileState requestFile={requestFile} hasEnded={hasEnded} /> },
  ];
}

const columns = columnsOf(false);
const columnsAfterEnd = columnsOf(true);

function FileState({ requestFile, hasEnded }: { requestFile: RequestFile; hasEnded: boolean }) {
  const { file, state, lastErrorClass, lastError, nextTryAt: nextTry } = requestFile;
  const why = [lastErrorClass, lastError].filter(Boolean).join(': ');
  return (
    <>
      <span class={`state ${state.toLowerCase()}`}>{(hasEnded ? namesAfterEnd : names)[state]}</span>
      {file.downloadPath && !hasEnded && <Download bytesPath={file.downloadPath} path={file.path} />}
      {why && <p class="why">{why}</p>}
      {nextTry && (
        <p class="why">
          Next try <Moment at={nextTry} side="ahead" />
        </p>
      )}
    </>
  );
}

const readState = (value: string): RequestFileState[] | undefined =>
  value === '' ? undefined : [value as RequestFileState];
