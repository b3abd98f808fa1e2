-- What was used of quotas, by the hour; and how fast drives read.
CREATE TABLE "quota_history" (
  "quota_id" INTEGER NOT NULL REFERENCES "quota"("id") ON DELETE RESTRICT ON UPDATE CASCADE,
  "at" TIMESTAMP(6) NOT NULL,
  "used" BIGINT NOT NULL,
  "size" BIGINT NOT NULL,
  CONSTRAINT "quota_history_pkey" PRIMARY KEY ("quota_id", "at")
);
CREATE INDEX "quota_history_at_idx" ON "quota_history"("at");

ALTER TABLE "drive" ADD COLUMN "rate" DOUBLE PRECISION;
