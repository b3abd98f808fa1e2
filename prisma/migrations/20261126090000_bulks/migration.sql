-- What clients of the WLCG Tape REST API have staged under one id: its files, each with the request that holds it, or why none does.
CREATE TYPE "BulkProblem" AS ENUM ('UNKNOWN', 'FOLDER', 'ELSEWHERE', 'QUOTA_FULL');

CREATE TABLE "bulk" (
    "id" UUID NOT NULL,
    "quota_id" INTEGER NOT NULL,
    "made_at" TIMESTAMP(6) NOT NULL,
    "cancelled_at" TIMESTAMP(6),

    CONSTRAINT "bulk_pkey" PRIMARY KEY ("id")
);

CREATE TABLE "bulk_file" (
    "bulk_id" UUID NOT NULL,
    "path" TEXT NOT NULL,
    "given" TEXT NOT NULL,
    "ordinal" INTEGER NOT NULL,
    "request_id" INTEGER,
    "file_id" BIGINT,
    "problem" "BulkProblem",
    "was_on_disk" BOOLEAN NOT NULL DEFAULT false,

    CONSTRAINT "bulk_file_pkey" PRIMARY KEY ("bulk_id","path"),
    CONSTRAINT "bulk_file_held_or_not" CHECK (("request_id" IS NULL) = ("problem" IS NOT NULL) AND ("request_id" IS NULL OR "file_id" IS NOT NULL))
);

CREATE INDEX "bulk_made_at_idx" ON "bulk"("made_at");
CREATE INDEX "bulk_file_file_id_idx" ON "bulk_file"("file_id");

ALTER TABLE "bulk" ADD CONSTRAINT "bulk_quota_id_fkey" FOREIGN KEY ("quota_id") REFERENCES "quota"("id") ON DELETE RESTRICT ON UPDATE CASCADE;
ALTER TABLE "bulk_file" ADD CONSTRAINT "bulk_file_bulk_id_fkey" FOREIGN KEY ("bulk_id") REFERENCES "bulk"("id") ON DELETE CASCADE ON UPDATE CASCADE;
ALTER TABLE "bulk_file" ADD CONSTRAINT "bulk_file_request_id_fkey" FOREIGN KEY ("request_id") REFERENCES "request"("id") ON DELETE SET NULL ON UPDATE CASCADE;
ALTER TABLE "bulk_file" ADD CONSTRAINT "bulk_file_file_id_fkey" FOREIGN KEY ("file_id") REFERENCES "tape_file"("id") ON DELETE SET NULL ON UPDATE CASCADE;
