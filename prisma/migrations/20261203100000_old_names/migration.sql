-- The name that an adopted copy had before is known by what stood there when it was taken over, whatever becomes of the copy.
ALTER TABLE "adopted" ADD COLUMN "place_disk_id" INTEGER, ADD COLUMN "place_ino" BIGINT, ADD COLUMN "place_mtime_ns" BIGINT, ADD COLUMN "place_size" BIGINT;

-- Copies that have left already leave the disk alone to tell of; another one that has come since has another inode, and is not taken for it.
UPDATE "adopted" a SET "place_disk_id" = f.disk_id, "place_ino" = f.disk_ino, "place_mtime_ns" = f.disk_mtime_ns, "place_size" = f.size,
  "place" = CASE WHEN a.place <> k.mountpoint || coalesce(f.disk_path, f.path) THEN a.place END
  FROM "tape_file" f JOIN "restore_disk" k ON k.id = f.disk_id WHERE a.kind = 'COPY' AND a.place IS NOT NULL AND f.id = a.id;
UPDATE "adopted" a SET "place_disk_id" = (SELECT k.id FROM "restore_disk" k WHERE starts_with(a.place, k.mountpoint || '/') ORDER BY length(k.mountpoint) DESC LIMIT 1)
  WHERE a.kind = 'COPY' AND a.place IS NOT NULL AND a.place_disk_id IS NULL;
