-- A letter before a request expires, and the date that it tells of: one that is extended since has another.
ALTER TYPE "NotificationKind" ADD VALUE 'EXPIRING';
ALTER TABLE "notification" ADD COLUMN "expires_at" TIMESTAMP(6);
