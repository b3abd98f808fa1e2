-- What keeps drives from working on a volume is noted with it, and no drive turns to it before `retry_at`.
ALTER TABLE "volume" ADD COLUMN "failures" INTEGER NOT NULL DEFAULT 0;
ALTER TABLE "volume" ADD COLUMN "failing_since" TIMESTAMP(6);
ALTER TABLE "volume" ADD COLUMN "retry_at" TIMESTAMP(6);
ALTER TABLE "volume" ADD COLUMN "problem" TEXT;
