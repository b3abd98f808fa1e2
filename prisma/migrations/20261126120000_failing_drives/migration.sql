-- How often a drive could not be used, one time after another.
ALTER TABLE "drive" ADD COLUMN "failures" INTEGER NOT NULL DEFAULT 0;
