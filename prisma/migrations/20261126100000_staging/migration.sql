-- What is asked of the systems behind staging libraries, and who asks. A row is there before a system is asked for a file, and goes
-- when the system was told that nobody needs it, or has said that it has gone there.
CREATE TYPE "StagingState" AS ENUM ('INTENDED', 'ASKED', 'READY', 'RELEASING', 'KEPT');

CREATE TABLE "staging" (
    "file_id" BIGINT NOT NULL,
    "library_id" INTEGER NOT NULL,
    "state" "StagingState" NOT NULL DEFAULT 'INTENDED',
    "batch" UUID NOT NULL,
    "remote_id" TEXT,
    "size" BIGINT NOT NULL,
    "attempts" INTEGER NOT NULL DEFAULT 0,
    "asked_at" TIMESTAMP(6) NOT NULL,
    "since" TIMESTAMP(6) NOT NULL,
    "due_at" TIMESTAMP(6) NOT NULL,
    "ready_until" TIMESTAMP(6),

    CONSTRAINT "staging_pkey" PRIMARY KEY ("file_id", "library_id")
);

CREATE INDEX "staging_library_id_state_due_at_idx" ON "staging"("library_id", "state", "due_at");
ALTER TABLE "staging" ADD CONSTRAINT "staging_file_id_fkey" FOREIGN KEY ("file_id") REFERENCES "tape_file"("id") ON DELETE RESTRICT ON UPDATE CASCADE;
ALTER TABLE "staging" ADD CONSTRAINT "staging_library_id_fkey" FOREIGN KEY ("library_id") REFERENCES "library"("id") ON DELETE RESTRICT ON UPDATE CASCADE;

-- What counts for the depth, whatever else is kept.
CREATE INDEX "staging_open_idx" ON "staging" ("library_id", "file_id") INCLUDE ("size") WHERE "state" IN ('INTENDED', 'ASKED', 'READY');

-- Made by the first engine that turns to the library.
CREATE TABLE "stager" (
    "library_id" INTEGER NOT NULL,
    "engine_id" UUID,
    "epoch" BIGINT NOT NULL DEFAULT 0,
    "lease_until" TIMESTAMP(6),
    "failures" INTEGER NOT NULL DEFAULT 0,
    "rest_until" TIMESTAMP(6),
    "problem" TEXT,
    "read_failures" INTEGER NOT NULL DEFAULT 0,
    "read_rest_until" TIMESTAMP(6),
    "read_problem" TEXT,

    CONSTRAINT "stager_pkey" PRIMARY KEY ("library_id")
);

ALTER TABLE "stager" ADD CONSTRAINT "stager_library_id_fkey" FOREIGN KEY ("library_id") REFERENCES "library"("id") ON DELETE CASCADE ON UPDATE CASCADE;
