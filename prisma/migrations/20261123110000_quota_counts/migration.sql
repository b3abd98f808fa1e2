-- What a user has at once, in live requests: these, paths that they wait for and that the catalogue does not know, and those by a pattern.
-- Programs from before do not count: engines compare, and mend.
ALTER TABLE "quota" ADD COLUMN "open_requests" INTEGER NOT NULL DEFAULT 0;
ALTER TABLE "quota" ADD COLUMN "awaited_paths" INTEGER NOT NULL DEFAULT 0;
ALTER TABLE "quota" ADD COLUMN "standing_patterns" INTEGER NOT NULL DEFAULT 0;

-- What the models cannot say: the live requests of a quota, among however many that have ended.
CREATE INDEX "request_live_quota_idx" ON "request" ("quota_id") WHERE "state" NOT IN ('EXPIRED', 'CANCELLED');
