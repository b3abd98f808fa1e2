-- A disk that fails stays one that is not to be looked at, also where an operator has taken it out of service.
ALTER TABLE "restore_disk" ADD COLUMN "retry_at" TIMESTAMP(6);

CREATE OR REPLACE VIEW "failing_disk" AS
  SELECT k.id AS disk_id FROM "restore_disk" k
  WHERE k.retry_at IS NOT NULL OR EXISTS (
    SELECT FROM "suspension" s WHERE s.kind = 'DISK' AND s.name = k.mountpoint AND s.retry_at IS NOT NULL);
