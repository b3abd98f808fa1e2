-- The first path from `lowest` on, and before `highest`, in order of bytes, that the caller may list. Which rules hold for a path changes
-- only where what a rule is for begins or ends: from a path that is kept from the caller the search goes on there, so that what is hidden
-- takes no longer the more of it there is, nor tells by its time that it is there.
CREATE FUNCTION first_listed(lowest text, highest text, who text, groups text[]) RETURNS text LANGUAGE plpgsql STABLE PARALLEL SAFE AS $$
DECLARE
  edge text := lowest;
  found text;
BEGIN
  WHILE edge IS NOT NULL LOOP
    found := (SELECT f.path FROM tape_file f WHERE f.path ~>=~ edge AND f.path ~<~ highest ORDER BY f.path USING ~<~ LIMIT 1);
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
