-- A disk that refuses to take more (ENOSPC, EDQUOT), whatever it says to have free, takes nothing new before `full_until`.
ALTER TABLE "restore_disk" ADD COLUMN "fulls" INTEGER NOT NULL DEFAULT 0;
ALTER TABLE "restore_disk" ADD COLUMN "full_at" TIMESTAMP(6);
ALTER TABLE "restore_disk" ADD COLUMN "full_until" TIMESTAMP(6);
ALTER TABLE "restore_disk" ADD COLUMN "full_reason" TEXT;
