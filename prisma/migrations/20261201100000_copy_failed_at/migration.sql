-- When the second copy could not be read: what was asked for since asks for it again.
ALTER TABLE "tape_file" ADD COLUMN "copy_failed_at" TIMESTAMP(6);
-- A program that knows no second copies is refused rather than heard where it would lose one. What is there keeps to both: nothing is looked through.
ALTER TABLE "tape_file" ADD CONSTRAINT "tape_file_copy_elsewhere" CHECK ("copy_volume_id" <> "volume_id") NOT VALID;
ALTER TABLE "tape_file" DROP CONSTRAINT "tape_file_copy_volume_id_fkey";
ALTER TABLE "tape_file" ADD CONSTRAINT "tape_file_copy_volume_id_fkey" FOREIGN KEY ("copy_volume_id") REFERENCES "volume"("id") ON DELETE RESTRICT ON UPDATE CASCADE NOT VALID;
