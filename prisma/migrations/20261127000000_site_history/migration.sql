-- Curves of the site: a row for each five minutes of the last days, and for each hour before that.
CREATE TABLE "site_history" (
    "at" TIMESTAMP(6) NOT NULL,
    "seconds" INTEGER NOT NULL,
    "files_restored" INTEGER NOT NULL DEFAULT 0,
    "bytes_restored" BIGINT NOT NULL DEFAULT 0,
    "files_failed" INTEGER NOT NULL DEFAULT 0,
    "files_waiting" INTEGER,
    "oldest_seconds" DOUBLE PRECISION,
    "drives_in_use" DOUBLE PRECISION,
    "drives" INTEGER,
    "up_to" BIGINT NOT NULL,

    CONSTRAINT "site_history_pkey" PRIMARY KEY ("at")
);
