-- Puts a pseudonym in place of a user's name and e-mail addresses in the audit, in the texts of what was given as well. Nobody else changes rows.
CREATE FUNCTION "forget_in_audit"(name TEXT, addresses TEXT[], pseudonym TEXT) RETURNS INTEGER LANGUAGE plpgsql AS $$
DECLARE
  words TEXT[] := ARRAY(SELECT trim(BOTH '"' FROM to_jsonb(w)::text) FROM unnest(array_append(addresses, name)) w);
  changed INTEGER;
BEGIN
  UPDATE audit a SET
    who = CASE WHEN a.who = name THEN pseudonym ELSE a.who END,
    address = CASE WHEN a.who = name THEN NULL ELSE a.address END,
    object = CASE WHEN a.object = name AND a.kind IN ('QUOTA', 'USER') THEN pseudonym ELSE a.object END,
    given = forget_in_json(a.given, name, addresses, pseudonym, a.who = name OR (a.object = name AND a.kind IN ('QUOTA', 'USER'))
      OR jsonb_path_exists(a.given, '$.** ? (@ == $name)', jsonb_build_object('name', name)))
  WHERE a.who = name OR (a.object = name AND a.kind IN ('QUOTA', 'USER'))
    OR EXISTS (SELECT FROM unnest(words) w WHERE strpos(a.given::text, w) > 0);
  GET DIAGNOSTICS changed = ROW_COUNT;
  RETURN changed;
END $$;

-- A JSON value in which each text that is the name is the pseudonym, and each address, within a text as well. Of what was asked by
-- the user, or for it, free texts are the pseudonym as a whole.
CREATE FUNCTION "forget_in_json"(value JSONB, name TEXT, addresses TEXT[], pseudonym TEXT, is_own BOOLEAN) RETURNS JSONB LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
  found TEXT;
  address TEXT;
BEGIN
  CASE jsonb_typeof(value)
    WHEN 'object' THEN
      RETURN coalesce((SELECT jsonb_object_agg(e.key, CASE
        WHEN is_own AND e.key IN ('label', 'note', 'notes', 'reason') AND e.value <> '""' THEN to_jsonb(pseudonym)
        ELSE forget_in_json(e.value, name, addresses, pseudonym, is_own) END) FROM jsonb_each(value) e), '{}');
    WHEN 'array' THEN
      RETURN coalesce((SELECT jsonb_agg(forget_in_json(e.value, name, addresses, pseudonym, is_own) ORDER BY e.ordinality)
        FROM jsonb_array_elements(value) WITH ORDINALITY e), '[]');
    WHEN 'string' THEN
      found := value #>> '{}';
      IF found = name THEN RETURN to_jsonb(pseudonym); END IF;
      FOREACH address IN ARRAY addresses LOOP
        found := replace(found, address, pseudonym);
      END LOOP;
      RETURN to_jsonb(found);
    ELSE RETURN value;
  END CASE;
END $$;

-- Append-only: a row is deleted by prune_audit alone, and changed by forget_in_audit alone, in what it may hold of a person.
CREATE OR REPLACE FUNCTION "audit_guard"() RETURNS TRIGGER LANGUAGE plpgsql AS $$
DECLARE
  callers TEXT;
BEGIN
  GET DIAGNOSTICS callers = PG_CONTEXT;
  IF TG_OP = 'DELETE' AND callers ~ '\mprune_audit\(timestamp' THEN RETURN OLD; END IF;
  IF TG_OP = 'UPDATE' AND callers ~ '\mforget_in_audit\(text,text' THEN
    IF (OLD.id, OLD.at, OLD.way, OLD.token_id, OLD.operation, OLD.kind, OLD.result, OLD.count)
      IS NOT DISTINCT FROM (NEW.id, NEW.at, NEW.way, NEW.token_id, NEW.operation, NEW.kind, NEW.result, NEW.count) THEN RETURN NEW; END IF;
  END IF;
  RAISE EXCEPTION 'audit is append-only: % is refused', TG_OP USING ERRCODE = 'restrict_violation';
END $$;
