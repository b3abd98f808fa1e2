-- The processes that work with drives: where each runs, and which of them ask for a drive. Programs from before are not in it.
CREATE TABLE "engine_process" (
    "id" UUID NOT NULL,
    "engine_id" UUID NOT NULL,
    "host" TEXT NOT NULL,
    "drives" INTEGER NOT NULL,
    "reach" INTEGER NOT NULL,
    "weight" INTEGER NOT NULL,
    "asks_until" TIMESTAMP(6) NOT NULL,

    CONSTRAINT "engine_process_pkey" PRIMARY KEY ("id")
);
