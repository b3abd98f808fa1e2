-- Volumes that have left the archive: no file is on one, and none comes there.
ALTER TABLE "volume" ADD COLUMN "retired_at" TIMESTAMP(6), ADD COLUMN "retired_why" TEXT;
CREATE INDEX "volume_retired_idx" ON "volume" ("id") WHERE "retired_at" IS NOT NULL;

-- As it was, and by a place: whoever moves a volume looks whether a place on another one is free.
CREATE INDEX "tape_file_copy_place_idx" ON "tape_file" ("copy_volume_id", "copy_position") WHERE "copy_volume_id" IS NOT NULL;
DROP INDEX "tape_file_copy_idx";

-- As it was, and with retired volumes, on which nothing begins: programs from before leave them alone, too.
CREATE OR REPLACE VIEW "suspended_volume" AS
  SELECT v.id AS volume_id, s.mode, s.reason FROM "suspension" s JOIN "volume" v ON v.name = s.name WHERE s.kind = 'VOLUME'
  UNION ALL
  SELECT v.id, 'HELD'::"SuspensionMode", 'it was retired' || coalesce(': ' || v.retired_why, '') FROM "volume" v
  WHERE v.retired_at IS NOT NULL AND NOT EXISTS (SELECT FROM "suspension" s WHERE s.kind = 'VOLUME' AND s.name = v.name);
