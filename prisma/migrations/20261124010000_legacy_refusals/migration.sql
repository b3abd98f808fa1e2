-- Callers who showed nothing are counted as well where that was not enough: once a door is closed, they are whom it keeps out.
ALTER TABLE "legacy_use" ADD COLUMN "refused" BIGINT NOT NULL DEFAULT 0;
