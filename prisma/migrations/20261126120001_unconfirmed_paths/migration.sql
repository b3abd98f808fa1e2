-- Copies to be confirmed have a position, or are in a library that goes by paths.
DROP INDEX "tape_file_unconfirmed_idx";
CREATE INDEX "tape_file_unconfirmed_idx" ON "tape_file" ("volume_id", "position", "id")
  WHERE "stage" = 'UNVERIFIED' AND "verified" IS NULL AND "checksum" IS NOT NULL;
