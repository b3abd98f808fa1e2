-- Of the bytes that the recall was to bring: inode, size and time of modification may be those of somebody else's file by now.
ALTER TABLE "left_behind" ADD COLUMN "checksum" TEXT;
