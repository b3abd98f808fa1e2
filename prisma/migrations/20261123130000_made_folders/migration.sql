-- Folders of the restore area that were made by Tapegate, which alone are removed when they are empty.
CREATE TABLE "made_folder" (
    "disk_id" INTEGER NOT NULL,
    "path" TEXT NOT NULL,
    "ino" BIGINT,
    "birth_ns" BIGINT,

    CONSTRAINT "made_folder_pkey" PRIMARY KEY ("disk_id","path")
);

ALTER TABLE "made_folder" ADD CONSTRAINT "made_folder_disk_id_fkey" FOREIGN KEY ("disk_id") REFERENCES "restore_disk"("id") ON DELETE CASCADE ON UPDATE CASCADE;
