-- The trace in which a request was made, for engines to go on with.
ALTER TABLE "request" ADD COLUMN "trace_parent" TEXT;
