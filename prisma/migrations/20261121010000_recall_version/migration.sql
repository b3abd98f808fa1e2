-- What a running recall reads: with its place, the version of the file that its copy will belong to.
ALTER TABLE "recall" ADD COLUMN "checksum" TEXT;
