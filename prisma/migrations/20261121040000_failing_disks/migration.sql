-- Restore disks that fail are held by the engine, and tried again.
ALTER TABLE "suspension" ADD COLUMN "retry_at" TIMESTAMP(6);
ALTER TABLE "restore_disk" ADD COLUMN "failures" INTEGER NOT NULL DEFAULT 0;

-- Disks that the engine has taken out of service: nothing on them is looked at until a try says that they work again.
CREATE VIEW "failing_disk" AS
  SELECT k.id AS disk_id FROM "suspension" s JOIN "restore_disk" k ON k.mountpoint = s.name
  WHERE s.kind = 'DISK' AND s.retry_at IS NOT NULL;

-- Only a change of service rings: a disk that is tried again and again is none.
CREATE OR REPLACE TRIGGER suspension_ring AFTER INSERT OR UPDATE OF "mode" OR DELETE ON "suspension"
  FOR EACH STATEMENT EXECUTE FUNCTION ring();
