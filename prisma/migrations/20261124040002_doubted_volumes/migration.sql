-- A volume that was held for files that could not be read may be put back into service before what was wrong is mended. Until
-- something is restored from it again, its files are not to be given up for that.
ALTER TABLE "volume" ADD COLUMN "doubted_since" TIMESTAMP(6);
