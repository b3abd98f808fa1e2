-- The gateways and engines that run, each by its own word. Programs from before are not in it.
CREATE TABLE "running_process" (
    "id" UUID NOT NULL,
    "kind" TEXT NOT NULL,
    "host" TEXT NOT NULL,
    "pid" INTEGER NOT NULL,
    "version" TEXT NOT NULL,
    "started_at" TIMESTAMP(6) NOT NULL,
    "seen_at" TIMESTAMP(6) NOT NULL,
    "lag_seconds" DOUBLE PRECISION NOT NULL,

    CONSTRAINT "running_process_pkey" PRIMARY KEY ("id")
);
