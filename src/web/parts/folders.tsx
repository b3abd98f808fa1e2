/** Shows links to the parent folders and the subfolders of the folder in the search text. */
import { DirectoryDocument } from '../../generated/operations.js';
import { useViewQuery } from '../view-query';

interface FoldersProps {
  /** Search text, possibly empty. If the text begins with a slash, the part up to the last slash is a folder. */
  match: string;
  onSearch(text: string): void;
}

export function Folders({ match, onSearch }: FoldersProps) {
  const parts = match.split('/');
  const isPath = match === '' || match.startsWith('/');
  if (!isPath) return null;
  const steps = parts.slice(1, -1).map((name, index) => ({ name, path: `${parts.slice(0, index + 2).join('/')}/` }));
  const folder = match.slice(0, match.lastIndexOf('/') + 1) || '/';
  return (
    <>
      {steps.length > 0 && (
        <nav class="folders" aria-label="Folders above">
          <button type="button" class="button plain" onClick={() => onSearch('')}>
            All files
          </button>
          {steps.map(({ name, path }) => (
            <button type="button" class="button plain" key={path} onClick={() => onSearch(path)}>
              {name}/
            </button>
          ))}
        </nav>
      )}
      <Below folder={folder} onSearch={onSearch} />
    </>
  );
}

/** Maximum number of folders to show. */
const SHOWN = 40;

function Below({ folder, onSearch }: { folder: string; onSearch(text: string): void }) {
  const { data } = useViewQuery(DirectoryDocument, { path: folder });
  const entries = data?.directory?.entries;
  const folders = (entries?.edges ?? []).map(({ node }) => node).filter(({ isDirectory }) => isDirectory);
  if (folders.length === 0) return null;
  const more = folders.length - SHOWN;
  return (
    <nav class="folders" aria-label={`Folders in ${folder}`}>
      {folders.slice(0, SHOWN).map(({ path }) => (
        <button type="button" class="button plain" key={path} onClick={() => onSearch(`${path}/`)}>
          <bdi>{path.slice(path.lastIndexOf('/') + 1)}/</bdi>
        </button>
      ))}
      {(more > 0 || entries?.pageInfo.hasNextPage) && (
        <span>… and more folders: type the start of a name to see them</span>
      )}
    </nav>
  );
}
