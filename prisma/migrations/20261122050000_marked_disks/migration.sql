-- A disk that was marked once is never marked anew by itself: without its marker it is not mounted. Of those that are there already,
-- what an engine has measured was marked; the others are noted when they are met.
ALTER TABLE "restore_disk" ADD COLUMN "marked_at" TIMESTAMP(6), ADD COLUMN "marked_as" TEXT;

UPDATE "restore_disk" k SET "marked_at" = m.at FROM (
  SELECT "disk_id", min("measured_at") AS at FROM "disk_measurement" WHERE "free" IS NOT NULL GROUP BY "disk_id"
) m WHERE m."disk_id" = k."id";
