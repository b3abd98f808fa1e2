/** Shows the files that failed permanently, the recalls with errors, and the tape copies that could not be verified. */

import { useEffect } from 'preact/hooks';
import {
  type RecallRowFragment,
  RecallsDocument,
  VerificationsDocument,
  type VerificationsQuery,
  VerifyFilesDocument,
} from '../../../generated/operations.js';
import { useAction } from '../../actions';
import { count } from '../../format';
import { Badge } from '../../parts/badge';
import { RotateCcw } from '../../parts/icons';
import { Menu } from '../../parts/menu';
import { Moment } from '../../parts/moment';
import { usePaging } from '../../parts/paging';
import type { Column } from '../../parts/table';
import { Tabs } from '../../parts/tabs';
import { Title } from '../../parts/title';
import { useToast } from '../../parts/toast';
import { useCaller } from '../../sign-in/caller';
import { VolumeLink } from './drive-state';
import { errorClasses } from './error-classes';
import { FailedFileList } from './failed-files';
import { useFilters } from './filters';
import { PAGE, Rows } from './list';
import { reloadViews, useLiveQuery } from './live';
import { Cut } from './service';

const pathColumn = { title: 'File', cell: ({ file }: { file: { path: string } }) => <code>{file.path}</code> };

const recallVolume: Column<RecallRowFragment> = {
  title: 'Volume',
  cell: ({ volume }) => (volume ? <VolumeLink name={volume.name} /> : 'unknown'),
};

const recallColumns: Column<RecallRowFragment>[] = [
  {
    title: 'State',
    cell: ({ state, drive }) =>
      state === 'RUNNING' ? (
        <Badge tone="info">Reading{drive ? ` in ${drive.name}` : ''}</Badge>
      ) : (
        <Badge tone="wait">Waiting</Badge>
      ),
  },
  { title: 'Attempts', isNumber: true, cell: ({ attempts }) => attempts },
  { title: 'Class', cell: ({ lastErrorClass }) => (lastErrorClass ? errorClasses[lastErrorClass] : '') },
  { title: 'Last error', cell: ({ lastError }) => <Cut text={lastError ?? ''} /> },
  { title: 'Waiting since', cell: ({ createdAt }) => <Moment at={createdAt} side="past" /> },
  { title: 'Next try', cell: ({ nextTryAt }) => (nextTryAt ? <Moment at={nextTryAt} side="ahead" /> : '') },
];

/** Lists recalls, by default those with an error. @param volume name of the only volume to show */
export function RecallList({ volume, isAll = false }: { volume?: string; isAll?: boolean }) {
  const paging = usePaging();
  const variables = { volume, onlyWithErrors: !isAll, first: PAGE, after: paging.after };
  const look = useLiveQuery(RecallsDocument, variables, 'QUEUE', 'DRIVES');
  return (
    <Rows
      label={isAll ? 'Recalls' : 'Recalls with errors'}
      {...{ look, paging }}
      columns={[pathColumn, ...(volume === undefined ? [recallVolume] : []), ...recallColumns]}
      keyOf={({ file }) => file.path}
      none={[isAll ? 'No files are waiting to be read' : 'No recalls have errors']}
    />
  );
}

type Verification = NonNullable<VerificationsQuery['list']>['edges'][number]['node'];

const verificationVolume: Column<Verification> = {
  title: 'Volume',
  cell: ({ file }) => (file.volume ? <VolumeLink name={file.volume.name} /> : 'unknown'),
};

const verificationColumns: Column<Verification>[] = [
  { title: 'Attempts', isNumber: true, cell: ({ attempts }) => attempts },
  { title: 'Class', cell: ({ errorClass }) => errorClasses[errorClass] },
  { title: 'Error', cell: ({ error }) => <Cut text={error} /> },
  { title: 'Last', cell: ({ at }) => <Moment at={at} side="past" /> },
  { title: 'Next', cell: ({ nextTryAt }) => (nextTryAt ? <Moment at={nextTryAt} side="ahead" /> : 'on request') },
  { title: 'Actions', isUntitled: true, isNumber: true, cell: ({ file }) => <VerifyMenu path={file.path} /> },
];

function VerifyMenu({ path }: { path: string }) {
  const { isOperator, isReadOnly } = useCaller();
  const action = useAction();
  const toast = useToast();
  const { problem } = action;
  useEffect(() => {
    if (problem !== undefined) toast(problem, { tone: 'bad' });
  }, [problem, toast]);
  if (!isOperator || isReadOnly) return null;
  const verify = async () => {
    const found = await action.run(VerifyFilesDocument, { match: path });
    const files = found?.result?.value?.fileCount;
    if (files === undefined) return;
    toast(`${count(files, 'file')} will be verified again.`);
    reloadViews();
  };
  return <Menu label={`Actions for ${path}`} items={[{ text: 'Verify again', icon: RotateCcw, onSelect: verify }]} />;
}

export function VerificationList({ volume }: { volume?: string }) {
  const paging = usePaging();
  const look = useLiveQuery(VerificationsDocument, { volume, first: PAGE, after: paging.after }, 'QUEUE');
  return (
    <Rows
      label="Tape copies that could not be verified"
      {...{ look, paging }}
      columns={[pathColumn, ...(volume === undefined ? [verificationVolume] : []), ...verificationColumns]}
      keyOf={({ file }) => file.path}
      none={['No failed verifications']}
    />
  );
}

export function FailuresPage() {
  const { values, choose } = useFilters('tab');
  return (
    <>
      <Title text="Failures" />
      <Tabs
        label="Failures"
        value={values.tab ?? 'files'}
        onChoose={(tab) => choose({ tab: tab === 'files' ? undefined : tab })}
        tabs={[
          { value: 'files', title: 'Failed files', content: () => <FailedFileList /> },
          { value: 'recalls', title: 'Recalls with errors', content: () => <RecallList /> },
          {
            value: 'verifications',
            title: 'Tape copies that could not be verified',
            content: () => <VerificationList />,
          },
        ]}
      />
    </>
  );
}
