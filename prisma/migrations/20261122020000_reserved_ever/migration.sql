-- Disks are looked at before they are locked: what was reserved since is told by how much this has grown.
ALTER TABLE "restore_disk" ADD COLUMN "reserved_ever" BIGINT NOT NULL DEFAULT 0;
