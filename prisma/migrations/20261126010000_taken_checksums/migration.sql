-- A file without a checksum gets one at its first restore. What the archive says of one that was taken here, and where, is another
-- matter than of one that it has told itself.
ALTER TABLE "tape_file" ADD COLUMN "checksum_taken" BOOLEAN NOT NULL DEFAULT false;
