-- Events are kept for a time. A batch that is given up is marked first and its events deleted in steps; the last such batch stays, to
-- say up to which number there are none any more.
ALTER TABLE "event_batch" ADD COLUMN "is_pruned" BOOLEAN NOT NULL DEFAULT false;
CREATE INDEX "event_batch_pruned_idx" ON "event_batch" ("last_number") WHERE "is_pruned";

CREATE OR REPLACE VIEW "numbered_event" AS
  SELECT b.first_number + e.id - b.first_id AS number, e.*
  FROM "event" e JOIN "event_batch" b ON b.id = e.batch_id WHERE b.last_number IS NOT NULL AND NOT b.is_pruned;
