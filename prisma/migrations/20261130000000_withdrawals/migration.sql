-- Files that nobody can ask for any more.
ALTER TABLE "tape_file" ADD COLUMN "withdrawn_at" TIMESTAMP(6), ADD COLUMN "withdrawn_why" TEXT, ADD COLUMN "is_unlisted" BOOLEAN NOT NULL DEFAULT false;
CREATE INDEX "tape_file_withdrawn_idx" ON "tape_file"("path") WHERE "withdrawn_at" IS NOT NULL;
-- plans believe little of a column of which nothing is known
ANALYZE "tape_file" ("withdrawn_at");

-- As it was, but for files that are withdrawn, which are in no list.
CREATE OR REPLACE FUNCTION first_listed(lowest text, highest text, who text, groups text[]) RETURNS text LANGUAGE plpgsql STABLE PARALLEL SAFE AS $$
DECLARE
  edge text := lowest;
  found text;
BEGIN
  WHILE edge IS NOT NULL LOOP
    found := (SELECT f.path FROM tape_file f WHERE f.path ~>=~ edge AND f.path ~<~ highest AND (f.withdrawn_at > '-infinity') IS NOT TRUE ORDER BY f.path USING ~<~ LIMIT 1);
    IF found IS NULL OR path_ruled(found, 'LIST', who, groups) THEN
      RETURN found;
    END IF;
    -- a rule is for the path itself and for those below it: nothing is between a path and the same with the least character at its end,
    -- and what follows the paths below begins with what follows a slash
    edge := (SELECT b.path
      FROM path_rule r CROSS JOIN LATERAL (VALUES (r.prefix), (r.prefix || chr(1)), (r.prefix || '/'), (r.prefix || '0')) AS b (path)
      WHERE r.action = 'LIST' AND b.path ~>~ found ORDER BY b.path USING ~<~ LIMIT 1);
  END LOOP;
  RETURN NULL;
END
$$;
