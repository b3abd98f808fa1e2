-- The words of a path, for patterns that hold one: what stands between delimiters (src/operations/pattern-lookup.ts has the same).
-- tsvector mixes up words of more than 2,046 bytes, so of a path that may have one no words are known, which '/' says, being in no word.
CREATE FUNCTION "path_words"(path text) RETURNS tsvector LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN octet_length(path) <= 2046
  THEN array_to_tsvector(array_remove(string_to_array(translate(path, '_-.+=,:@~ ', '//////////'), '/'), ''))
  ELSE array_to_tsvector(ARRAY['/']) END;

CREATE INDEX "tape_file_words_idx" ON "tape_file" USING GIN (path_words("path"));

-- What the planner knows of words is of the rows that are there.
ANALYZE "tape_file";
