-- AlterTable
ALTER TABLE "recall" ADD COLUMN "copy_ino" BIGINT,
ADD COLUMN "copy_mtime_ns" BIGINT;

-- AlterTable
ALTER TABLE "tape_file" ADD COLUMN "disk_checksum" TEXT,
ADD COLUMN "disk_ctime_ns" BIGINT,
ADD COLUMN "disk_ino" BIGINT;

-- CreateTable
CREATE TABLE "left_behind" (
    "id" BIGSERIAL NOT NULL,
    "file_id" BIGINT NOT NULL,
    "disk_id" INTEGER NOT NULL,
    "drive_id" INTEGER NOT NULL,
    "epoch" BIGINT NOT NULL,
    "size" BIGINT NOT NULL,
    "ino" BIGINT,
    "mtime_ns" BIGINT,

    CONSTRAINT "left_behind_pkey" PRIMARY KEY ("id")
);

-- CreateIndex
CREATE INDEX "left_behind_file_id_idx" ON "left_behind"("file_id");

-- AddForeignKey
ALTER TABLE "left_behind" ADD CONSTRAINT "left_behind_file_id_fkey" FOREIGN KEY ("file_id") REFERENCES "tape_file"("id") ON DELETE CASCADE ON UPDATE CASCADE;

-- AddForeignKey
ALTER TABLE "left_behind" ADD CONSTRAINT "left_behind_disk_id_fkey" FOREIGN KEY ("disk_id") REFERENCES "restore_disk"("id") ON DELETE CASCADE ON UPDATE CASCADE;



-- What the models cannot say.

-- A program that does not know what copies are known by forgets only where they were: the rest would be taken for
-- that of the next copy.
CREATE FUNCTION "forget_copy"() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  NEW.disk_ino := NULL;
  NEW.disk_ctime_ns := NULL;
  NEW.disk_checksum := NULL;
  RETURN NEW;
END $$;

CREATE TRIGGER "forget_copy" BEFORE UPDATE OF "disk_id" ON "tape_file"
  FOR EACH ROW WHEN (NEW."disk_id" IS NULL AND NEW."disk_ino" IS NOT NULL) EXECUTE FUNCTION "forget_copy"();
