-- What libraries were sent, where that is counted: what a bill is made of.
CREATE TABLE "library_usage" (
    "library_id" INTEGER NOT NULL,
    "request" TEXT NOT NULL,
    "requests" BIGINT NOT NULL,
    "bytes" BIGINT NOT NULL,

    CONSTRAINT "library_usage_pkey" PRIMARY KEY ("library_id", "request")
);

ALTER TABLE "library_usage" ADD CONSTRAINT "library_usage_library_id_fkey" FOREIGN KEY ("library_id") REFERENCES "library"("id") ON DELETE CASCADE ON UPDATE CASCADE;

-- How long files have taken there, for estimates.
ALTER TABLE "stager" ADD COLUMN "waits" DOUBLE PRECISION[] DEFAULT ARRAY[]::DOUBLE PRECISION[];
