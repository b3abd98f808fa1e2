-- Who asked for which change, and what came of it.
CREATE TABLE "audit" (
    "id" BIGSERIAL NOT NULL,
    "at" TIMESTAMP(6) NOT NULL,
    "who" TEXT NOT NULL,
    "way" TEXT NOT NULL,
    "token_id" INTEGER,
    "address" TEXT,
    "operation" TEXT NOT NULL,
    "kind" TEXT NOT NULL,
    "object" TEXT NOT NULL,
    "given" JSONB NOT NULL DEFAULT '{}',
    "result" TEXT NOT NULL,
    "count" INTEGER NOT NULL DEFAULT 1,

    CONSTRAINT "audit_pkey" PRIMARY KEY ("id")
);
CREATE INDEX "audit_at_id_idx" ON "audit"("at", "id");
CREATE INDEX "audit_who_id_idx" ON "audit"("who", "id");
CREATE INDEX "audit_operation_id_idx" ON "audit"("operation", "id");
CREATE INDEX "audit_object_kind_id_idx" ON "audit"("object", "kind", "id");

-- Deletes the oldest rows that are older than a time, so many at most. Nobody else deletes any.
CREATE FUNCTION "prune_audit"(before TIMESTAMP, step INTEGER) RETURNS INTEGER LANGUAGE plpgsql AS $$
DECLARE
  pruned INTEGER;
BEGIN
  DELETE FROM audit WHERE id = ANY(ARRAY(
    SELECT a.id FROM audit a WHERE a.at < before ORDER BY a.at, a.id LIMIT step FOR UPDATE SKIP LOCKED));
  GET DIAGNOSTICS pruned = ROW_COUNT;
  RETURN pruned;
END $$;

-- Append-only: a row is deleted by prune_audit alone, and changed by nobody.
CREATE FUNCTION "audit_guard"() RETURNS TRIGGER LANGUAGE plpgsql AS $$
DECLARE
  callers TEXT;
BEGIN
  GET DIAGNOSTICS callers = PG_CONTEXT;
  IF TG_OP = 'DELETE' AND callers ~ '\mprune_audit\(timestamp' THEN RETURN OLD; END IF;
  RAISE EXCEPTION 'audit is append-only: % is refused', TG_OP USING ERRCODE = 'restrict_violation';
END $$;

CREATE TRIGGER "audit_guard_rows" BEFORE UPDATE OR DELETE ON "audit" FOR EACH ROW EXECUTE FUNCTION audit_guard();
CREATE TRIGGER "audit_guard_table" BEFORE TRUNCATE ON "audit" FOR EACH STATEMENT EXECUTE FUNCTION audit_guard();
