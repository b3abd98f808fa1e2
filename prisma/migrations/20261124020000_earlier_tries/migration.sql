-- Tries before its volume was put back into service, or somebody asked for it again: they are no tries of its own any more,
-- and tell that the file has failed before.
ALTER TABLE "recall" ADD COLUMN "earlier_tries" INTEGER NOT NULL DEFAULT 0;
