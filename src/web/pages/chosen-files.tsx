/** What was chosen, also what the present search does not show. */
import { count } from '../format';

interface ChosenFilesProps {
  /** Logical paths. */
  chosen: ReadonlySet<string>;
  onLeave(path: string): void;
  onClear(): void;
}

export function ChosenFiles({ chosen, onLeave, onClear }: ChosenFilesProps) {
  if (chosen.size === 0) return null;
  return (
    <div class="tools">
      <details>
        <summary>{count(chosen.size, 'file')} chosen: which</summary>
        <ul>
          {[...chosen].map((path) => (
            <li key={path}>
              <code>{path}</code>
              <button type="button" class="plain" aria-label={`Leave ${path}`} onClick={() => onLeave(path)}>
                Leave
              </button>
            </li>
          ))}
        </ul>
      </details>
      <button type="button" onClick={onClear}>
        Choose none
      </button>
    </div>
  );
}
