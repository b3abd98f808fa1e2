-- CreateEnum
CREATE TYPE "SuspensionKind" AS ENUM ('VOLUME', 'DRIVE', 'USER', 'BACKEND', 'DISK');

-- CreateEnum
CREATE TYPE "SuspensionMode" AS ENUM ('HELD', 'DRAINING');

-- AlterEnum
ALTER TYPE "AwaitedReason" ADD VALUE 'LIMIT';

-- AlterTable
ALTER TABLE "quota" ADD COLUMN     "drive_seconds" DOUBLE PRECISION NOT NULL DEFAULT 0,
ADD COLUMN     "drive_seconds_at" TIMESTAMP(6),
ADD COLUMN     "weight" DOUBLE PRECISION NOT NULL DEFAULT 1;

-- AlterTable
ALTER TABLE "request" ADD COLUMN     "max_bytes" BIGINT,
ADD COLUMN     "max_files" INTEGER,
ADD COLUMN     "priority" INTEGER NOT NULL DEFAULT 0;

-- AlterTable
ALTER TABLE "volume" ADD COLUMN     "medium" TEXT NOT NULL DEFAULT 'linear';

-- CreateTable
CREATE TABLE "suspension" (
    "kind" "SuspensionKind" NOT NULL,
    "name" TEXT NOT NULL,
    "mode" "SuspensionMode" NOT NULL,
    "reason" TEXT NOT NULL,
    "since" TIMESTAMP(6) NOT NULL,

    CONSTRAINT "suspension_pkey" PRIMARY KEY ("kind","name")
);

-- What the models cannot say.

ALTER TABLE "quota" ADD CONSTRAINT "quota_weight_check" CHECK ("weight" > 0 AND "drive_seconds" >= 0);

-- A volume's files in order: where each of them begins.
CREATE INDEX "tape_file_place_idx" ON "tape_file" ("volume_id", "position") WHERE "volume_id" IS NOT NULL;

-- The holds that count: of live requests, and not let go early.
CREATE VIEW "live_hold" AS
  SELECT h.request_id, h.file_id, h.ordinal, h.size, h.state, r.quota_id, r.priority, r.request_date
  FROM "hold" h JOIN "request" r ON r.id = h.request_id
  WHERE r.state NOT IN ('EXPIRED', 'CANCELLED') AND h.state <> 'RELEASED';

-- Engines and whoever watches the plan hear of what an operator changes.
CREATE TRIGGER suspension_ring AFTER INSERT OR UPDATE OR DELETE ON "suspension" FOR EACH STATEMENT EXECUTE FUNCTION ring();
