-- Files that get other paths, and files that are forgotten.
ALTER TABLE "tape_file" ADD COLUMN "forgotten_at" TIMESTAMP(6), ADD COLUMN "disk_path" TEXT, ADD COLUMN "tape_path" TEXT;
ALTER TABLE "left_behind" ADD COLUMN "path" TEXT;
-- looked up by their names, and by the folders around these
CREATE INDEX "tape_file_disk_path_idx" ON "tape_file"("disk_path" text_pattern_ops) WHERE "disk_path" IS NOT NULL;
CREATE INDEX "tape_file_tape_path_idx" ON "tape_file"("tape_path") WHERE "tape_path" IS NOT NULL;

-- plans believe little of a column of which nothing is known
ANALYZE "tape_file" ("disk_path", "tape_path", "forgotten_at");

-- Where copies stand that are not at the paths of their files.
CREATE VIEW "renamed_place" AS
  SELECT f.id AS file_id, f.disk_path AS path FROM tape_file f WHERE f.disk_path IS NOT NULL
  UNION ALL SELECT l.file_id, l.path FROM left_behind l WHERE l.path IS NOT NULL;

-- Without a copy there is no place of one: whoever lets a copy go need not think of it. At UNVERIFIED what stands for the file is noted after the move.
CREATE FUNCTION forget_disk_path() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  NEW.disk_path := NULL;
  RETURN NEW;
END $$;
CREATE TRIGGER tape_file_disk_path BEFORE UPDATE OF "stage", "disk_id", "changed_disk_id" ON "tape_file" FOR EACH ROW
  WHEN (NEW.disk_path IS NOT NULL AND NEW.disk_id IS NULL AND NEW.changed_disk_id IS NULL AND NEW.stage NOT IN ('RESTORING', 'UNVERIFIED'))
  EXECUTE FUNCTION forget_disk_path();
