/** Compares the present plan with the plan for a changed site. The address has the changes. */

import type { AnyVariables } from '@urql/core';
import { useClient } from '@urql/preact';
import { useId, useMemo, useState } from 'preact/hooks';
import {
  type PlanOutcomeFragment,
  SimulatePlanDocument,
  type SimulatePlanQuery,
  SimulationChoicesDocument,
  type SimulationChoicesQuery,
  SuspensionsDocument,
} from '../../../generated/operations.js';
import { formatBytes, formatNumber } from '../../format';
import { Badge } from '../../parts/badge';
import { Button } from '../../parts/button';
import { Empty } from '../../parts/empty';
import { Inbox, RefreshCw, X } from '../../parts/icons';
import { Moment } from '../../parts/moment';
import { messageOf, Problem, Refused } from '../../parts/problem';
import { Skeleton } from '../../parts/skeleton';
import type { Column } from '../../parts/table';
import { Title } from '../../parts/title';
import { useRoute } from '../../route';
import { useViewQuery } from '../../view-query';
import { VolumeLink } from './drive-state';
import { formatDuration } from './durations';
import { Cut } from './service';
import { addressOf, type Choices, inputOf, MAX_ADDED, readChoices } from './simulation';
import { SiteTable } from './site-table';

type Change = (choices: Choices) => void;

export function WhatIfPage() {
  const choices = readChoices(useRoute().search);
  const change: Change = (chosen) => {
    location.hash = addressOf(chosen);
  };
  return (
    <>
      <Title text="What if …" />
      <p class="facts">
        Suspend or add drives, libraries and volumes here to see how the queue would change. Nothing is changed at the
        site.
      </p>
      <div class="what-if">
        <Chooser choices={choices} change={change} />
        <Comparison choices={choices} />
      </div>
    </>
  );
}

function Chooser({ choices, change }: { choices: Choices; change: Change }) {
  const { data, error, again } = useViewQuery(SimulationChoicesDocument, {});
  if (error) return <Problem error={error} again={again} />;
  if (!data) return <Skeleton />;
  const libraries = data.libraries?.edges.map(({ node }) => node) ?? [];
  const isChanged = addressOf(choices) !== '#/what-if';
  return (
    <section class="card chooser" aria-label="Changes">
      <fieldset>
        <legend>Suspend drives</legend>
        <div class="check-list">
          {(data.plan?.drives ?? []).map(({ name, isOpen }) => (
            <CheckBox
              key={name}
              {...{ choices, change, name }}
              kind="DRIVE"
              note={isOpen ? '' : 'out of service now'}
            />
          ))}
        </div>
      </fieldset>
      <fieldset>
        <legend>Add drives</legend>
        {libraries
          .filter(({ contract }) => contract === 'DRIVE')
          .map(({ name }) => (
            <AddedDrives key={name} {...{ choices, change, name }} />
          ))}
      </fieldset>
      <fieldset>
        <legend>Suspend libraries</legend>
        {libraries.map(({ name }) => (
          <CheckBox key={name} {...{ choices, change, name }} kind="LIBRARY" />
        ))}
      </fieldset>
      <Volumes choices={choices} change={change} plan={data.plan} />
      {isChanged && (
        <Button kind="plain" onClick={() => change(readChoices(new URLSearchParams()))}>
          Reset
        </Button>
      )}
    </section>
  );
}

interface ChoiceProps {
  choices: Choices;
  change: Change;
  name: string;
}

function toggle({ suspended, added }: Choices, kind: keyof Choices['suspended'], name: string): Choices {
  const before = suspended[kind];
  const after = before.includes(name) ? before.filter((each) => each !== name) : [...before, name];
  return { added, suspended: { ...suspended, [kind]: after } };
}

function CheckBox({ choices, change, name, kind, note }: ChoiceProps & { kind: 'DRIVE' | 'LIBRARY'; note?: string }) {
  return (
    <label class="check">
      <input
        type="checkbox"
        checked={choices.suspended[kind].includes(name)}
        onChange={() => change(toggle(choices, kind, name))}
      />
      {name}
      {note && <Badge tone="quiet">{note}</Badge>}
    </label>
  );
}

function AddedDrives({ choices, change, name }: ChoiceProps) {
  const set = (event: { currentTarget: HTMLInputElement }) => {
    const number = Math.min(MAX_ADDED, Math.max(0, Math.trunc(event.currentTarget.valueAsNumber || 0)));
    change({ ...choices, added: new Map([...choices.added, [name, number]]) });
  };
  return (
    <label class="inline">
      <input type="number" min={0} max={MAX_ADDED} value={choices.added.get(name) ?? 0} onChange={set} />
      in library {name}
    </label>
  );
}

function Volumes({ choices, change, plan }: Omit<ChoiceProps, 'name'> & { plan: SimulationChoicesQuery['plan'] }) {
  const client = useClient();
  const [name, setName] = useState('');
  const [refusal, setRefusal] = useState<string>();
  const [listId, refusalId] = [useId(), useId()];
  const chosen = choices.suspended.VOLUME;
  const add = async (event: Event) => {
    event.preventDefault();
    const given = name.trim();
    if (given && !chosen.includes(given)) {
      // the gateway checks the name, because the page does not have the names of all volumes
      const variables = { input: { suspend: [{ kind: 'VOLUME' as const, name: given }], addDrives: [] }, first: 0 };
      const { data, error } = await client
        .query<SimulatePlanQuery, AnyVariables>(SimulatePlanDocument.toString(), variables)
        .toPromise();
      const why = error ? messageOf(error) : data?.result?.errors[0]?.message;
      setRefusal(why);
      if (why !== undefined) return;
      change(toggle(choices, 'VOLUME', given));
    }
    setRefusal(undefined);
    setName('');
  };
  return (
    <fieldset>
      <legend>Suspend volumes</legend>
      <form class="go" onSubmit={add}>
        <label>
          Volume name
          <input
            value={name}
            list={listId}
            aria-invalid={refusal !== undefined}
            aria-describedby={refusal === undefined ? undefined : refusalId}
            onInput={(event) => setName(event.currentTarget.value)}
            spellcheck={false}
          />
        </label>
        <datalist id={listId}>
          {(plan?.queue.edges ?? []).map(({ node }) => (
            <option key={node.volumeName} value={node.volumeName} />
          ))}
        </datalist>
        <Button type="submit">Add</Button>
      </form>
      {refusal !== undefined && (
        <p class="problem" role="alert" id={refusalId}>
          {refusal}
        </p>
      )}
      <ul class="chips" aria-label="Volumes to suspend">
        {chosen.map((volume) => (
          <li key={volume}>
            <bdi>{volume}</bdi>
            <Button
              kind="bare"
              icon={X}
              label={`Keep ${volume} in service`}
              onClick={() => change(toggle(choices, 'VOLUME', volume))}
            />
          </li>
        ))}
      </ul>
    </fieldset>
  );
}

type Simulated = NonNullable<NonNullable<SimulatePlanQuery['result']>['value']>;

/** Number of volumes that the comparison shows. */
const MAX_VOLUMES = 100;

function Comparison({ choices }: { choices: Choices }) {
  const { data, error, isFetching, again } = useViewQuery(SimulatePlanDocument, {
    input: inputOf(choices),
    first: MAX_VOLUMES,
  });
  const result = data?.result;
  const value = result?.value;
  const columns = useMemo(() => volumeColumns(value?.at ?? ''), [value?.at]);
  return (
    <section aria-label="Plans" aria-busy={isFetching}>
      {error && <Problem error={error} again={again} />}
      {result?.errors.map(({ message }) => (
        <Refused key={message} why={message} />
      ))}
      {!data && !error && <Skeleton />}
      {value && (
        <>
          <div class="line-ends">
            <span class="facts" role="status">
              Calculated <Moment at={value.at} side="past" />
            </span>
            <Button icon={RefreshCw} onClick={again}>
              Recalculate
            </Button>
          </div>
          <AllSuspended value={value} />
          <Outcomes value={value} />
          <h2>Queue by volume</h2>
          {value.volumes.totalCount > 0 ? (
            <SiteTable
              label="Queue by volume"
              columns={columns}
              rows={value.volumes.edges.map(({ node }) => node)}
              keyOf={({ volumeName }) => volumeName}
            />
          ) : (
            <Empty icon={Inbox} title="No files waiting, so the plans do not differ" />
          )}
          {value.volumes.totalCount > MAX_VOLUMES && (
            <p class="facts">
              The first {MAX_VOLUMES} of {formatNumber(value.volumes.totalCount)} volumes
            </p>
          )}
        </>
      )}
    </section>
  );
}

/** Says that changes have no effect, if all waiting files are on suspended volumes. */
function AllSuspended({ value: { volumes } }: { value: Simulated }) {
  const { data } = useViewQuery(SuspensionsDocument, { first: 1000 });
  const suspended = new Set(
    (data?.list?.edges ?? []).flatMap(({ node: { kind, name } }) => (kind === 'VOLUME' ? [name] : [])),
  );
  const { edges, totalCount } = volumes;
  if (edges.length === 0 || edges.length < totalCount) return null;
  if (!edges.every(({ node }) => suspended.has(node.volumeName))) return null;
  return (
    <p class="problem" role="status">
      All waiting files are on suspended volumes, so these changes have no effect.
    </p>
  );
}

interface Line {
  title: string;
  figureOf(outcome: PlanOutcomeFragment, at: number): number | null;
  format(value: number): string;
  /** Words for a larger and for a smaller value. */
  words: [more: string, less: string];
  /** Text instead of an unknown value. */
  unknown?: string;
  isShown?(value: Simulated): boolean;
}

const lines: Line[] = [
  { title: 'Working drives', figureOf: ({ driveCount }) => driveCount, format: formatNumber, words: ['more', 'fewer'] },
  { title: 'Mounts', figureOf: ({ mountCount }) => mountCount, format: formatNumber, words: ['more', 'fewer'] },
  {
    title: 'Queue empties in',
    figureOf: ({ emptyAt }, at) => (emptyAt === null ? null : Math.max(0, (Date.parse(emptyAt) - at) / 1000)),
    format: formatDuration,
    words: ['later', 'sooner'],
    unknown: 'no file is read',
  },
  {
    title: 'Longest user wait',
    figureOf: ({ longestWaitSeconds }) => longestWaitSeconds,
    format: formatDuration,
    words: ['longer', 'shorter'],
    unknown: 'no file is read',
  },
  {
    title: 'Files that cannot be recalled',
    figureOf: ({ filesBlocked }) => filesBlocked,
    format: formatNumber,
    words: ['more', 'fewer'],
  },
  {
    title: 'Bytes that cannot be recalled',
    figureOf: ({ bytesBlocked }) => Number(bytesBlocked),
    format: (bytes) => formatBytes(Math.round(bytes)),
    words: ['more', 'less'],
  },
  {
    title: 'Files of staging libraries (not planned here)',
    figureOf: ({ filesUnplanned }) => filesUnplanned,
    format: formatNumber,
    words: ['more', 'fewer'],
    isShown: ({ present, changed }) => present.filesUnplanned + changed.filesUnplanned > 0,
  },
];

function Outcomes({ value }: { value: Simulated }) {
  const at = Date.parse(value.at);
  const cell = ({ figureOf, format, unknown = 'unknown' }: Line, outcome: PlanOutcomeFragment) => {
    const known = figureOf(outcome, at);
    return known === null ? unknown : format(known);
  };
  const columns: Column<Line>[] = [
    { title: 'Figure', cell: ({ title }) => title },
    { title: 'Now', isNumber: true, cell: (line) => cell(line, value.present) },
    { title: 'Changed', isNumber: true, cell: (line) => <strong>{cell(line, value.changed)}</strong> },
    {
      title: 'Difference',
      isNumber: true,
      cell: (line) => difference(line.figureOf(value.present, at), line.figureOf(value.changed, at), line),
    },
  ];
  const shown = lines.filter(({ isShown = () => true }) => isShown(value));
  return <SiteTable label="Comparison" columns={columns} rows={shown} keyOf={({ title }) => title} />;
}

/** Describes how much larger or smaller the second value is, such as `3.5 h later`. */
function difference(before: number | null, after: number | null, { format, words }: Pick<Line, 'format' | 'words'>) {
  if (before === null || after === null) return '';
  const text = format(Math.abs(after - before));
  return text === format(0) ? 'same' : `${text} ${after > before ? words[0] : words[1]}`;
}

type Compared = Simulated['volumes']['edges'][number]['node'];

function volumeColumns(at: string): Column<Compared>[] {
  const secondsTo = (end: string | null) =>
    end === null ? null : Math.max(0, (Date.parse(end) - Date.parse(at)) / 1000);
  const endOf = ({ endsAt, problem }: Compared['present']) => {
    const seconds = secondsTo(endsAt);
    return seconds === null ? <Cut text={problem ?? 'not planned'} /> : `in ${formatDuration(seconds)}`;
  };
  return [
    { title: 'Volume', cell: ({ volumeName }) => <VolumeLink name={volumeName} /> },
    { title: 'Library', cell: ({ libraryName }) => libraryName },
    { title: 'Files', isNumber: true, cell: ({ fileCount }) => formatNumber(fileCount) },
    { title: 'Bytes', isNumber: true, cell: ({ bytes }) => formatBytes(bytes) },
    { title: 'All read, now', isNumber: true, cell: ({ present }) => endOf(present) },
    { title: 'All read, changed', isNumber: true, cell: ({ changed }) => <strong>{endOf(changed)}</strong> },
    {
      title: 'Difference',
      isNumber: true,
      cell: ({ present, changed }) =>
        difference(secondsTo(present.endsAt), secondsTo(changed.endsAt), {
          format: formatDuration,
          words: ['later', 'sooner'],
        }),
    },
  ];
}
