/** Selects the files of a pasted or dropped list of paths. Unknown paths are shown with similar paths to choose. */

import { useClient } from '@urql/preact';
import { useEffect, useState } from 'preact/hooks';
import { PathMatchesDocument } from '../../../generated/operations.js';
import { count, formatNumber } from '../../format';
import { Button } from '../../parts/button';
import { Dialog } from '../../parts/dialog';
import { Check, Plus } from '../../parts/icons';
import { messageOf } from '../../parts/problem';
import { type FileSelection, MAX_SELECTED } from './selection';

interface PasteDialogProps {
  /** Text that the user has already pasted. */
  text: string;
  folder: string;
  selection: FileSelection;
  onClose(): void;
}

/** Maximum number of paths in a query. */
const CHUNK = 1000;
/** Pause, in milliseconds, between the user's last keystroke and the look-up of the paths. */
const TYPING_MS = 250;
/** Number of unknown paths to show. */
const SHOWN = 50;

interface Unknown {
  path: string;
  suggestions: readonly string[];
}

interface Checked {
  text: string;
  known: Map<string, number>;
  unknown: Unknown[];
  problem: string | undefined;
}

/** Returns the paths in a text, one a line. A name without a slash at its beginning is in the current folder. */
export function readPaths(text: string, folder: string): string[] {
  const lines = text.split(/\r?\n/).map((line) =>
    line
      .trim()
      .replace(/[\s,;]+$/, '')
      .replace(/^(["'])(.*)\1$/, '$2')
      .replace(/(?<=.)\/+$/, ''),
  );
  return [...new Set(lines.filter(Boolean).map((line) => (line.startsWith('/') ? line : `${folder}/${line}`)))];
}

export function PasteDialog({ text: pasted, folder, selection, onClose }: PasteDialogProps) {
  const [text, setText] = useState(pasted);
  const [choices, setChoices] = useState<ReadonlyMap<string, string>>(new Map());
  const paths = readPaths(text, folder);
  const checked = useChecked(text, folder);
  const isChecked = checked?.text === text && checked.problem === undefined;
  const chosen = isChecked ? filesOf(checked, choices) : [];
  const select = () => {
    selection.add(chosen.map((path) => [path, checked?.known.get(path)]));
    onClose();
  };
  const reason = isChecked ? (chosen.length === 0 ? 'No file of the list is known.' : undefined) : undefined;
  return (
    <Dialog
      title="Select files from a list"
      onClose={onClose}
      footer={
        <>
          <Button onClick={onClose}>Cancel</Button>
          <Button
            kind="main"
            onClick={select}
            disabledReason={
              paths.length === 0 ? 'Paste a list of paths.' : isChecked ? reason : 'Looking for the files …'
            }
          >
            Select {count(chosen.length, 'file')}
          </Button>
        </>
      }
    >
      <DropField text={text} folder={folder} onChange={setText} />
      <p role="status">
        {isChecked && paths.length > 0 && describeChecked(checked)}
        {!isChecked && paths.length > 0 && !checked?.problem && `Looking for ${count(paths.length, 'path')} …`}
      </p>
      {checked?.problem && (
        <p class="problem" role="alert">
          {checked.problem}
        </p>
      )}
      {isChecked && (
        <UnknownPaths
          unknown={checked.unknown}
          choices={choices}
          onChoose={(path, choice) => setChoices(new Map(choices).set(path, choice))}
        />
      )}
    </Dialog>
  );
}

const filesOf = ({ known, unknown }: Checked, choices: ReadonlyMap<string, string>): string[] => [
  ...new Set([...known.keys(), ...unknown.flatMap(({ path }) => choices.get(path) || [])]),
];

const describeChecked = ({ known, unknown }: Checked): string =>
  `${count(known.size, 'file')} found${unknown.length > 0 ? `, ${count(unknown.length, 'path')} not found` : ''}`;

function DropField({ text, folder, onChange }: { text: string; folder: string; onChange(text: string): void }) {
  const [isOver, setOver] = useState(false);
  const drop = async (event: DragEvent) => {
    event.preventDefault();
    setOver(false);
    const [file] = event.dataTransfer?.files ?? [];
    onChange(file ? await file.text() : (event.dataTransfer?.getData('text/plain') ?? ''));
  };
  return (
    <label class={`drop-field${isOver ? ' over' : ''}`}>
      One path per line. Names without a slash are looked up in {folder || '/'}
      <textarea
        rows={8}
        spellcheck={false}
        placeholder={'Paste paths, or drop a text file here'}
        value={text}
        onInput={(event) => onChange(event.currentTarget.value)}
        onDragOver={(event) => {
          event.preventDefault();
          setOver(true);
        }}
        onDragLeave={() => setOver(false)}
        onDrop={drop}
      />
    </label>
  );
}

interface UnknownPathsProps {
  unknown: readonly Unknown[];
  choices: ReadonlyMap<string, string>;
  onChoose(path: string, choice: string): void;
}

function UnknownPaths({ unknown, choices, onChoose }: UnknownPathsProps) {
  if (unknown.length === 0) return null;
  return (
    <>
      <h3>Not found</h3>
      <ul class="unknown-paths">
        {unknown.slice(0, SHOWN).map(({ path, suggestions }) => (
          <li key={path}>
            <code>{path}</code>
            <Suggestions
              path={path}
              suggestions={suggestions}
              chosen={choices.get(path)}
              onChoose={(choice) => onChoose(path, choice)}
            />
          </li>
        ))}
      </ul>
      {unknown.length > SHOWN && <p class="hint">and {formatNumber(unknown.length - SHOWN)} more, which are skipped</p>}
    </>
  );
}

interface SuggestionsProps extends Unknown {
  chosen: string | undefined;
  onChoose(choice: string): void;
}

/** Lets the user take one of the suggested files, or leave the path out. */
function Suggestions({ path, suggestions, chosen, onChoose }: SuggestionsProps) {
  if (suggestions.length === 0) return <span class="hint">Skipped: no similar file</span>;
  const folder = path.slice(0, path.lastIndexOf('/') + 1);
  const textOf = (each: string) => (each.startsWith(folder) ? each.slice(folder.length) : each);
  return (
    <div class="suggestions">
      <span class="hint">{chosen ? 'Instead:' : 'Skipped. Did you mean'}</span>
      {suggestions.map((each) => (
        <Button
          key={each}
          label={`Select ${each} instead`}
          icon={each === chosen ? Check : Plus}
          aria-pressed={each === chosen}
          onClick={() => onChoose(each === chosen ? '' : each)}
        >
          {textOf(each)}
        </Button>
      ))}
      {!chosen && <span class="hint">?</span>}
    </div>
  );
}

/** Looks the paths of a text up while the user edits it. */
function useChecked(text: string, folder: string): Checked | undefined {
  const client = useClient();
  const [checked, setChecked] = useState<Checked>();
  useEffect(() => {
    const paths = readPaths(text, folder);
    const state = { isStale: false };
    const check = async () => {
      const result: Checked = { text, known: new Map(), unknown: [], problem: undefined };
      if (paths.length > MAX_SELECTED) result.problem = `At most ${formatNumber(MAX_SELECTED)} paths can be selected.`;
      for (let at = 0; at < paths.length && !result.problem; at += CHUNK) {
        const chunk = { paths: paths.slice(at, at + CHUNK) };
        const { data, error } = await client.query(PathMatchesDocument.toString(), chunk, {
          requestPolicy: 'network-only',
        });
        if (state.isStale) return;
        if (error) result.problem = messageOf(error);
        for (const { path, file, suggestions } of data?.pathMatches ?? []) {
          if (file) result.known.set(file.path, Number(file.size));
          else result.unknown.push({ path, suggestions });
        }
      }
      setChecked(result);
    };
    const timer = setTimeout(check, TYPING_MS);
    return () => {
      state.isStale = true;
      clearTimeout(timer);
    };
  }, [text, folder, client]);
  return checked;
}
