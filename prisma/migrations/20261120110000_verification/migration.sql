-- CreateTable
CREATE TABLE "verification" (
    "file_id" BIGINT NOT NULL,
    "attempts" INTEGER NOT NULL,
    "error_class" "ErrorClass" NOT NULL,
    "error" TEXT NOT NULL,
    "at" TIMESTAMP(6) NOT NULL,
    "not_before" TIMESTAMP(6),

    CONSTRAINT "verification_pkey" PRIMARY KEY ("file_id")
);

-- AddForeignKey
ALTER TABLE "verification" ADD CONSTRAINT "verification_file_id_fkey" FOREIGN KEY ("file_id") REFERENCES "tape_file"("id") ON DELETE RESTRICT ON UPDATE CASCADE;



-- What the models cannot say.

-- Files whose tape copy is still to be confirmed.
CREATE INDEX "tape_file_unconfirmed_idx" ON "tape_file" ("volume_id", "position")
  WHERE "stage" = 'UNVERIFIED' AND "verified" IS NULL AND "checksum" IS NOT NULL AND "position" IS NOT NULL;
