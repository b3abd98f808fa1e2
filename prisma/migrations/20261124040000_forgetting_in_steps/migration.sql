-- As before, of a part of the audit, so that a large one is done in steps, and only rows that differ afterwards are written. The name is
-- looked for as a whole text of JSON, alone or after what it is the name of ("service:name"); addresses are found within texts as well.
-- Own rows are those of the user, of its quota, and of its requests; sparing_own leaves these for later: they tell which addresses to look for.
CREATE FUNCTION "forget_in_audit"(name TEXT, addresses TEXT[], pseudonym TEXT, requests TEXT[], first BIGINT, last BIGINT, sparing_own BOOLEAN)
RETURNS INTEGER LANGUAGE plpgsql AS $$
DECLARE
  whole TEXT := to_jsonb(name)::text;
  ending TEXT := ':' || substr(to_jsonb(name)::text, 2);
  parts TEXT[] := ARRAY(SELECT substr(j.text, 2, length(j.text) - 2) FROM (SELECT to_jsonb(w)::text AS text FROM unnest(addresses) w) j);
  changed INTEGER;
BEGIN
  UPDATE audit a SET
    who = CASE WHEN a.who = name THEN pseudonym ELSE a.who END,
    address = CASE WHEN a.who = name THEN NULL ELSE a.address END,
    object = CASE WHEN a.object = name AND a.kind IN ('QUOTA', 'USER') THEN pseudonym ELSE a.object END,
    given = n.given
  FROM (
    SELECT o.id, forget_in_json(o.given, name, addresses, pseudonym, m.is_own) AS given
    FROM audit o CROSS JOIN LATERAL (
      SELECT o.who = name OR (o.object = name AND o.kind IN ('QUOTA', 'USER'))
        OR (o.kind = 'REQUEST' AND o.object IN (SELECT unnest(requests)))
        OR (strpos(o.given::text, whole) > 0 AND jsonb_path_exists(o.given, '$.** ? (@ == $name)', jsonb_build_object('name', name))) AS is_own
      OFFSET 0
    ) m
    WHERE o.id BETWEEN first AND last AND NOT (sparing_own AND m.is_own)
      AND (m.is_own OR strpos(o.given::text, ending) > 0 OR EXISTS (SELECT FROM unnest(parts) p WHERE strpos(o.given::text, p) > 0))
    OFFSET 0
  ) n
  WHERE n.id = a.id AND (a.who = name OR (a.object = name AND a.kind IN ('QUOTA', 'USER')) OR a.given <> n.given);
  GET DIAGNOSTICS changed = ROW_COUNT;
  RETURN changed;
END $$;

-- Programs from before do it all at once.
CREATE OR REPLACE FUNCTION "forget_in_audit"(name TEXT, addresses TEXT[], pseudonym TEXT) RETURNS INTEGER LANGUAGE plpgsql AS $$
BEGIN
  RETURN forget_in_audit(name, addresses, pseudonym, '{}', 0, 9223372036854775807, false);
END $$;

-- As before; of what was asked by the user, or for it, what was too long to be kept as it was given goes as well.
CREATE OR REPLACE FUNCTION "forget_in_json"(value JSONB, name TEXT, addresses TEXT[], pseudonym TEXT, is_own BOOLEAN) RETURNS JSONB LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
  found TEXT;
  address TEXT;
BEGIN
  CASE jsonb_typeof(value)
    WHEN 'object' THEN
      RETURN coalesce((SELECT jsonb_object_agg(e.key, CASE
        WHEN is_own AND e.key IN ('label', 'note', 'notes', 'reason', 'email', 'notifyOnFirstFile', 'notifyOnLastFile', 'cut')
          AND e.value NOT IN ('""', 'null') THEN CASE
            WHEN e.value #>> '{}' ~ '^forgotten-[0-9a-f]{8}$' THEN e.value -- of a time before, which ended halfway
            ELSE to_jsonb(pseudonym) END
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
