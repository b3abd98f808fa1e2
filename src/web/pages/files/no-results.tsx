/** Shown when a search finds nothing: why, and what the user might have meant. */

import { NameSuggestionsDocument, PathMatchesDocument } from '../../../generated/operations.js';
import { describeNoMatch } from '../../no-match';
import { Button } from '../../parts/button';
import { Empty } from '../../parts/empty';
import { SearchX } from '../../parts/icons';
import { useViewQuery } from '../../view-query';
import { countFilters, nameOfPath, noFilters, type Place } from './address';

interface NoResultsProps {
  place: Place;
  onChange(change: Partial<Place>): void;
}

export function NoResults({ place, onChange }: NoResultsProps) {
  const { folder, query, match, isEverywhere, filters } = place;
  const word = query.trim();
  const isWord = word !== '' && !/[\s"*?[\]]/.test(word);
  return (
    <Empty icon={SearchX} title="No matching files">
      {match !== '' && <p>{describeNoMatch(match)}.</p>}
      {isWord && (word.startsWith('/') ? <SimilarPaths path={word} onChoose={onChange} /> : null)}
      {isWord && !word.startsWith('/') && <SimilarNames word={word} folder={folder} onChoose={onChange} />}
      <div class="actions">
        {!isEverywhere && (
          <Button onClick={() => onChange({ isEverywhere: true })}>
            Search everywhere, not only in {nameOfPath(folder)}
          </Button>
        )}
        {countFilters(filters) > 0 && (
          <Button onClick={() => onChange({ filters: noFilters })}>Remove the filters</Button>
        )}
        {(word !== '' || match !== '') && (
          <Button onClick={() => onChange({ query: '', match: '', filters: noFilters })}>Clear the search</Button>
        )}
      </div>
    </Empty>
  );
}

type Choose = (change: Partial<Place>) => void;

function SimilarNames({ word, folder, onChoose }: { word: string; folder: string; onChoose: Choose }) {
  const { data } = useViewQuery(NameSuggestionsDocument, { word, directory: folder || '/' });
  return <DidYouMean texts={data?.nameSuggestions ?? []} onChoose={onChoose} />;
}

function SimilarPaths({ path, onChoose }: { path: string; onChoose: Choose }) {
  const { data } = useViewQuery(PathMatchesDocument, { paths: [path] });
  return <DidYouMean texts={data?.pathMatches[0]?.suggestions ?? []} onChoose={onChoose} />;
}

function DidYouMean({ texts, onChoose }: { texts: readonly string[]; onChoose: Choose }) {
  if (texts.length === 0) return null;
  const quoted = (text: string) => (/[\s"*?[\]]/.test(text) ? `"${text}"` : text);
  return (
    <p>
      Did you mean{' '}
      {texts.map((text, index) => (
        <>
          {index > 0 && ', '}
          <Button key={text} kind="plain" onClick={() => onChoose({ query: quoted(text) })}>
            {text}
          </Button>
        </>
      ))}
      ?
    </p>
  );
}
