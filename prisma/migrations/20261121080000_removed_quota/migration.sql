-- A quota that was removed stays for the history of its requests, and is in no list any more.
ALTER TABLE "quota" ADD COLUMN "removed_at" TIMESTAMP(6);
