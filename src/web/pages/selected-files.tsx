/** Shows the selected files, even those that the current search does not find. */
import { count } from '../format';

interface SelectedFilesProps {
  chosen: ReadonlySet<string>;
  onRemove(path: string): void;
  onClear(): void;
}

export function SelectedFiles({ chosen, onRemove, onClear }: SelectedFilesProps) {
  if (chosen.size === 0) return null;
  return (
    <div class="tools">
      <details>
        <summary>{count(chosen.size, 'file')} selected: show</summary>
        <ul>
          {[...chosen].map((path) => (
            <li key={path}>
              <code>{path}</code>
              <button type="button" class="button plain" aria-label={`Remove ${path}`} onClick={() => onRemove(path)}>
                Remove
              </button>
            </li>
          ))}
        </ul>
      </details>
      <button type="button" class="button" onClick={onClear}>
        Clear selection
      </button>
    </div>
  );
}
