-- Events are numbered after their commit, so that their order needs no lock which a writer holds until its commit.
--
-- Each INSERT makes a batch, which its transaction commits with the events. Whoever listens numbers the batches that it can
-- see, in one statement: a batch gets a range of numbers, and an event of it the number of its place in there. So a
-- million events cost one row, and a transaction that stays open keeps nobody else from being numbered.

CREATE TABLE "event_batch" (
    "id" BIGSERIAL NOT NULL,
    "transaction_id" BIGINT NOT NULL,
    "first_id" BIGINT NOT NULL,
    "last_id" BIGINT NOT NULL,
    "first_number" BIGINT,
    "last_number" BIGINT,

    CONSTRAINT "event_batch_pkey" PRIMARY KEY ("id")
);

-- What is to be numbered, by transaction, and what is, by number.
CREATE INDEX "event_batch_open_idx" ON "event_batch" ("transaction_id") WHERE "last_number" IS NULL;
CREATE UNIQUE INDEX "event_batch_number_idx" ON "event_batch" ("last_number") WHERE "last_number" IS NOT NULL;

-- What there is keeps the ids by which it is known. The column waits for the transactions that write events just now; what
-- is inserted afterwards, by programs too that know nothing of batches, has one.
ALTER TABLE "event" ADD COLUMN "batch_id" BIGINT NOT NULL DEFAULT 0;
ALTER TABLE "event" ALTER COLUMN "batch_id" SET DEFAULT (NULLIF(current_setting('tapegate.event_batch'::text, true), ''::text))::bigint;
INSERT INTO "event_batch" ("id", "transaction_id", "first_id", "last_id", "first_number", "last_number")
  SELECT 0, 0, min("id"), max("id"), min("id"), max("id") FROM "event" HAVING count(*) > 0;

DROP TRIGGER event_order ON "event";
DROP FUNCTION event_order();

CREATE FUNCTION begin_event_batch() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  PERFORM set_config('tapegate.event_batch', nextval('event_batch_id_seq')::text, true);
  RETURN NULL;
END;
$$;
CREATE TRIGGER event_batch_begin BEFORE INSERT ON "event" FOR EACH STATEMENT EXECUTE FUNCTION begin_event_batch();

CREATE FUNCTION end_event_batch() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO event_batch (id, transaction_id, first_id, last_id)
  SELECT batch_id, pg_current_xact_id()::text::bigint, min(id), max(id) FROM added GROUP BY batch_id;
  RETURN NULL;
END;
$$;
CREATE TRIGGER event_batch_end AFTER INSERT ON "event" REFERENCING NEW TABLE AS added
  FOR EACH STATEMENT EXECUTE FUNCTION end_event_batch();

-- Numbers the batches that are committed and have no number. Events are written last in their transactions: whoever had to
-- wait for another transaction has written after it, and so the order of the ids is that of the commits wherever two
-- transactions have to do with each other. A number is at least the id: who resumes after an id misses nothing.
--
-- `seen` is what the last call has given: all batches that were visible then have their numbers, and only the others are
-- looked for. (While an old transaction is open, what was numbered since is still in the index.)
--
-- Gives null when another one is numbering just now, or when more is left: to be called again.
CREATE FUNCTION number_events(seen pg_snapshot) RETURNS pg_snapshot LANGUAGE plpgsql
  SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
  most CONSTANT int := 1000;
  since bigint := coalesce(pg_snapshot_xmax(seen)::text::bigint, 0);
  were_open bigint[] := ARRAY(SELECT x::text::bigint FROM pg_snapshot_xip(seen) AS x);
  present pg_snapshot;
  is_left boolean;
  next_number bigint;
  batch record;
  done int := 0;
BEGIN
  SELECT pg_current_snapshot(), EXISTS (
    SELECT FROM event_batch b WHERE b.last_number IS NULL AND (b.transaction_id >= since OR b.transaction_id = ANY(were_open))
  ) INTO present, is_left;
  IF NOT is_left THEN RETURN present; END IF;
  IF NOT pg_try_advisory_xact_lock(1413563205, 1) THEN RETURN NULL; END IF;
  SELECT coalesce(max(b.last_number), 0) + 1 INTO next_number FROM event_batch b WHERE b.last_number IS NOT NULL;
  FOR batch IN
    SELECT b.id, b.first_id, b.last_id, pg_current_snapshot() AS snapshot FROM event_batch b
    WHERE b.last_number IS NULL AND (b.transaction_id >= since OR b.transaction_id = ANY(were_open))
    ORDER BY b.last_id LIMIT most
  LOOP
    next_number := greatest(next_number, batch.first_id);
    UPDATE event_batch SET first_number = next_number, last_number = next_number + batch.last_id - batch.first_id
    WHERE id = batch.id;
    next_number := next_number + batch.last_id - batch.first_id + 1;
    present := batch.snapshot;
    done := done + 1;
  END LOOP;
  RETURN CASE WHEN done < most THEN present END;
END;
$$;

-- Events as everybody is told of them, by `number`. (Readers that follow look at the batches themselves.)
CREATE VIEW "numbered_event" AS
  SELECT b.first_number + e.id - b.first_id AS number, e.*
  FROM "event" e JOIN "event_batch" b ON b.id = e.batch_id WHERE b.last_number IS NOT NULL;
