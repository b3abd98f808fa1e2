-- The restore disk where the copy of a file was changed by hand, and left alone.
ALTER TABLE "tape_file" ADD COLUMN "changed_disk_id" INTEGER;

ALTER TABLE "tape_file" ADD CONSTRAINT "tape_file_changed_disk_id_fkey" FOREIGN KEY ("changed_disk_id") REFERENCES "restore_disk"("id") ON DELETE SET NULL ON UPDATE CASCADE;

CREATE INDEX "tape_file_changed_idx" ON "tape_file" ("id") WHERE "changed_disk_id" IS NOT NULL;

-- What was changed before that was noted, where there is no doubt on which disk it is.
UPDATE "tape_file" f SET "changed_disk_id" = k."id" FROM "restore_disk" k, "verification" w
WHERE (SELECT count(*) FROM "restore_disk") = 1 AND w."file_id" = f."id" AND f."stage" = 'UNVERIFIED' AND f."disk_id" IS NULL
  AND w."error" = 'its copy in the restore area was changed: it is not the file that is on tape';
