/** The folders around what is looked for: those above it, each a step back, and those directly below, each a step on. */
import { FolderDocument } from '../../generated/web-operations';
import { useLook } from '../look';

interface FoldersProps {
  /** A text; a folder where it is one, with a slash at its end, or nothing. */
  match: string;
  onLook(text: string): void;
}

export function Folders({ match, onLook }: FoldersProps) {
  const parts = match.split('/');
  const isPath = match === '' || match.startsWith('/');
  if (!isPath) return null;
  const steps = parts.slice(1, -1).map((name, index) => ({ name, path: `${parts.slice(0, index + 2).join('/')}/` }));
  const folder = match.slice(0, match.lastIndexOf('/') + 1) || '/';
  return (
    <>
      {steps.length > 0 && (
        <nav class="folders" aria-label="Folders above">
          <button type="button" class="plain" onClick={() => onLook('')}>
            All files
          </button>
          {steps.map(({ name, path }) => (
            <button type="button" class="plain" key={path} onClick={() => onLook(path)}>
              {name}/
            </button>
          ))}
        </nav>
      )}
      <Below folder={folder} onLook={onLook} />
    </>
  );
}

/** Their number is the site's: so many are shown, and the others are found by typing. */
const SHOWN = 40;

function Below({ folder, onLook }: { folder: string; onLook(text: string): void }) {
  const { data } = useLook(FolderDocument, { path: folder });
  const folders = data?.folder.entries.filter(({ isFolder }) => isFolder) ?? [];
  if (folders.length === 0) return null;
  const more = folders.length - SHOWN;
  return (
    <nav class="folders" aria-label={`Folders in ${folder}`}>
      {folders.slice(0, SHOWN).map(({ path }) => (
        <button type="button" class="plain" key={path} onClick={() => onLook(`${path}/`)}>
          <bdi>{path.slice(path.lastIndexOf('/') + 1)}/</bdi>
        </button>
      ))}
      {(more > 0 || data?.folder.hasMore) && <span>… and more: type how they begin</span>}
    </nav>
  );
}
