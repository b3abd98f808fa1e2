-- Blocks of about a thousand files in path order. A search reads only the blocks whose paths contain the trigrams of its
-- words, so that it finds its first files quickly, even if they are few or far away.
-- `low` is the first possible path of a block. A block ends where the next one begins, and the first block begins at ''.
-- `grams` are the trigrams and pairs of the characters in the paths, in lower case, and '*' if the block has paths whose
-- characters the trigrams do not show. The first block has the order of paths, too. A block can have grams of files that it no longer contains.
CREATE TABLE "path_block" (
  "low" TEXT NOT NULL,
  "grams" TEXT[] NOT NULL,

  CONSTRAINT "path_block_pkey" PRIMARY KEY ("low")
);
CREATE INDEX "path_block_grams_idx" ON "path_block" USING GIN ("grams") WITH (fastupdate = off);

-- Ranges of file ids that contain each new or renamed file that the blocks do not cover yet.
CREATE TABLE "path_change" (
  "id" BIGSERIAL NOT NULL,
  "first_id" BIGINT NOT NULL,
  "last_id" BIGINT NOT NULL,

  CONSTRAINT "path_change_pkey" PRIMARY KEY ("id")
);

CREATE FUNCTION "add_path_changes"() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO path_change (first_id, last_id) SELECT min(a.id), max(a.id) FROM added a HAVING count(*) > 0;
  RETURN NULL;
END $$;

CREATE TRIGGER "tape_file_added" AFTER INSERT ON "tape_file" REFERENCING NEW TABLE AS added
  FOR EACH STATEMENT EXECUTE FUNCTION add_path_changes();

CREATE FUNCTION "add_path_change"() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO path_change (first_id, last_id) VALUES (NEW.id, NEW.id);
  RETURN NULL;
END $$;

CREATE TRIGGER "tape_file_renamed" AFTER UPDATE OF "path" ON "tape_file" FOR EACH ROW
  WHEN (OLD.path <> NEW.path) EXECUTE FUNCTION add_path_change();

INSERT INTO "path_change" ("first_id", "last_id") SELECT min(f.id), max(f.id) FROM "tape_file" f HAVING count(*) > 0;
