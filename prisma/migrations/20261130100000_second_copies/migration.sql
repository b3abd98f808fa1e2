-- A file may have the same bytes at a second place; they change places when the first one cannot be read.
ALTER TABLE "tape_file" ADD COLUMN "copy_volume_id" INTEGER, ADD COLUMN "copy_position" BIGINT, ADD COLUMN "copy_error" TEXT;
ALTER TABLE "tape_file" ADD CONSTRAINT "tape_file_copy_volume_id_fkey" FOREIGN KEY ("copy_volume_id") REFERENCES "volume"("id") ON DELETE SET NULL ON UPDATE CASCADE;
CREATE INDEX "tape_file_copy_idx" ON "tape_file" ("copy_volume_id") WHERE "copy_volume_id" IS NOT NULL;
