-- A letter is given up by how long and how often a mail server has refused it for now, however long it waited for its turn before.
ALTER TABLE "notification" ADD COLUMN "deferred_since" TIMESTAMP(6), ADD COLUMN "deferrals" INTEGER NOT NULL DEFAULT 0;
