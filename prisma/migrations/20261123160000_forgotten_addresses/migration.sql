-- As before, and of what was asked by the user, or for it, each address is the pseudonym as a whole as well: also one that the user has
-- no longer. A name may say whose of that name is meant, as in "service:name".
CREATE OR REPLACE FUNCTION "forget_in_json"(value JSONB, name TEXT, addresses TEXT[], pseudonym TEXT, is_own BOOLEAN) RETURNS JSONB LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
  found TEXT;
  address TEXT;
BEGIN
  CASE jsonb_typeof(value)
    WHEN 'object' THEN
      RETURN coalesce((SELECT jsonb_object_agg(e.key, CASE
        WHEN is_own AND e.key IN ('label', 'note', 'notes', 'reason', 'email', 'notifyOnFirstFile', 'notifyOnLastFile')
          AND e.value NOT IN ('""', 'null') THEN to_jsonb(pseudonym)
        ELSE forget_in_json(e.value, name, addresses, pseudonym, is_own) END) FROM jsonb_each(value) e), '{}');
    WHEN 'array' THEN
      RETURN coalesce((SELECT jsonb_agg(forget_in_json(e.value, name, addresses, pseudonym, is_own) ORDER BY e.ordinality)
        FROM jsonb_array_elements(value) WITH ORDINALITY e), '[]');
    WHEN 'string' THEN
      found := value #>> '{}';
      IF found = name THEN RETURN to_jsonb(pseudonym); END IF;
      IF found IN ('user:' || name, 'service:' || name, 'operator:' || name) THEN RETURN to_jsonb(split_part(found, ':', 1) || ':' || pseudonym); END IF;
      FOREACH address IN ARRAY addresses LOOP
        found := replace(found, address, pseudonym);
      END LOOP;
      RETURN to_jsonb(found);
    ELSE RETURN value;
  END CASE;
END $$;
