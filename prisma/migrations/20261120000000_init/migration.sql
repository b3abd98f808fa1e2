CREATE EXTENSION IF NOT EXISTS pg_trgm;

-- CreateSchema
CREATE SCHEMA IF NOT EXISTS "public";

-- CreateEnum
CREATE TYPE "Stage" AS ENUM ('UNVERIFIED', 'ONDISK', 'ONTAPE', 'RESTORING', 'RESTORED');

-- CreateEnum
CREATE TYPE "RequestState" AS ENUM ('QUEUED', 'RESTORING', 'COMPLETED', 'PARTIAL', 'EXPIRED', 'CANCELLED');

-- CreateEnum
CREATE TYPE "HoldState" AS ENUM ('WAITING', 'ON_DISK', 'FAILED', 'RELEASED');

-- CreateEnum
CREATE TYPE "RecallState" AS ENUM ('WAITING', 'RUNNING');

-- CreateEnum
CREATE TYPE "ErrorClass" AS ENUM ('TRANSIENT', 'PERMANENT', 'MEDIA', 'SPACE', 'POLICY');

-- CreateEnum
CREATE TYPE "AwaitedReason" AS ENUM ('UNKNOWN', 'QUOTA_FULL');

-- CreateEnum
CREATE TYPE "NotificationKind" AS ENUM ('FIRST_FILE', 'LAST_FILE');

-- CreateEnum
CREATE TYPE "NotificationState" AS ENUM ('PENDING', 'SENT', 'LOGGED', 'REJECTED');

-- CreateTable
CREATE TABLE "tape_file" (
    "id" BIGSERIAL NOT NULL,
    "path" TEXT NOT NULL,
    "size" BIGINT NOT NULL,
    "stage" "Stage" NOT NULL DEFAULT 'UNVERIFIED',
    "verified" TIMESTAMP(6),
    "checksum" TEXT,
    "spot_name" TEXT,
    "volume_id" INTEGER,
    "position" BIGINT,
    "disk_id" INTEGER,
    "disk_mtime_ns" BIGINT,

    CONSTRAINT "tape_file_pkey" PRIMARY KEY ("id")
);

-- CreateTable
CREATE TABLE "volume" (
    "id" SERIAL NOT NULL,
    "name" TEXT NOT NULL,
    "used" BIGINT NOT NULL DEFAULT 0,
    "next_position" BIGINT NOT NULL DEFAULT 1,

    CONSTRAINT "volume_pkey" PRIMARY KEY ("id")
);

-- CreateTable
CREATE TABLE "drive" (
    "id" SERIAL NOT NULL,
    "name" TEXT NOT NULL,
    "volume_id" INTEGER,
    "engine_id" UUID,
    "epoch" BIGINT NOT NULL DEFAULT 0,
    "lease_until" TIMESTAMP(6),

    CONSTRAINT "drive_pkey" PRIMARY KEY ("id")
);

-- CreateTable
CREATE TABLE "quota" (
    "id" SERIAL NOT NULL,
    "user" TEXT NOT NULL,
    "size" BIGINT NOT NULL,
    "used" BIGINT NOT NULL DEFAULT 0,
    "email" TEXT NOT NULL DEFAULT '',
    "notes" TEXT NOT NULL DEFAULT '',

    CONSTRAINT "quota_pkey" PRIMARY KEY ("id")
);

-- CreateTable
CREATE TABLE "request" (
    "id" SERIAL NOT NULL,
    "quota_id" INTEGER NOT NULL,
    "pattern" TEXT NOT NULL DEFAULT '',
    "label" TEXT NOT NULL,
    "request_date" TIMESTAMP(6) NOT NULL,
    "retention" TIMESTAMP(6) NOT NULL,
    "notify_on_first_file" TEXT,
    "notify_on_last_file" TEXT,
    "state" "RequestState" NOT NULL DEFAULT 'QUEUED',
    "tapestore_request_start" TIMESTAMP(6),
    "tapestore_request_end" TIMESTAMP(6),
    "first_files_on_disk" TIMESTAMP(6),
    "last_files_on_disk" TIMESTAMP(6),
    "last_arrival" TIMESTAMP(6),
    "files_total" INTEGER NOT NULL DEFAULT 0,
    "files_on_disk" INTEGER NOT NULL DEFAULT 0,
    "files_failed" INTEGER NOT NULL DEFAULT 0,
    "bytes_total" BIGINT NOT NULL DEFAULT 0,
    "bytes_on_disk" BIGINT NOT NULL DEFAULT 0,
    "is_released" BOOLEAN NOT NULL DEFAULT true,

    CONSTRAINT "request_pkey" PRIMARY KEY ("id")
);

-- CreateTable
CREATE TABLE "hold" (
    "request_id" INTEGER NOT NULL,
    "file_id" BIGINT NOT NULL,
    "ordinal" INTEGER NOT NULL,
    "size" BIGINT NOT NULL,
    "state" "HoldState" NOT NULL DEFAULT 'WAITING',
    "error_class" "ErrorClass",
    "error" TEXT,

    CONSTRAINT "hold_pkey" PRIMARY KEY ("request_id","file_id")
);

-- CreateTable
CREATE TABLE "awaited_path" (
    "request_id" INTEGER NOT NULL,
    "path" TEXT NOT NULL,
    "ordinal" INTEGER NOT NULL,
    "reason" "AwaitedReason" NOT NULL DEFAULT 'UNKNOWN',

    CONSTRAINT "awaited_path_pkey" PRIMARY KEY ("request_id","path")
);

-- CreateTable
CREATE TABLE "recall" (
    "file_id" BIGINT NOT NULL,
    "volume_id" INTEGER,
    "position" BIGINT,
    "size" BIGINT NOT NULL,
    "state" "RecallState" NOT NULL DEFAULT 'WAITING',
    "drive_id" INTEGER,
    "epoch" BIGINT,
    "disk_id" INTEGER,
    "attempts" INTEGER NOT NULL DEFAULT 0,
    "not_before" TIMESTAMP(6),
    "error_class" "ErrorClass",
    "error" TEXT,
    "created_at" TIMESTAMP(6) NOT NULL,
    "started_at" TIMESTAMP(6),

    CONSTRAINT "recall_pkey" PRIMARY KEY ("file_id")
);

-- CreateTable
CREATE TABLE "restore_disk" (
    "id" SERIAL NOT NULL,
    "mountpoint" TEXT NOT NULL,
    "size" BIGINT NOT NULL,
    "used" BIGINT NOT NULL DEFAULT 0,
    "reserved" BIGINT NOT NULL DEFAULT 0,

    CONSTRAINT "restore_disk_pkey" PRIMARY KEY ("id")
);

-- CreateTable
CREATE TABLE "notification" (
    "id" BIGSERIAL NOT NULL,
    "request_id" INTEGER NOT NULL,
    "kind" "NotificationKind" NOT NULL,
    "recipient" TEXT NOT NULL,
    "subject" TEXT NOT NULL,
    "body" TEXT NOT NULL,
    "message_id" TEXT NOT NULL,
    "state" "NotificationState" NOT NULL DEFAULT 'PENDING',
    "attempts" INTEGER NOT NULL DEFAULT 0,
    "next_try_at" TIMESTAMP(6) NOT NULL,
    "last_error" TEXT,
    "created_at" TIMESTAMP(6) NOT NULL,
    "sent_at" TIMESTAMP(6),

    CONSTRAINT "notification_pkey" PRIMARY KEY ("id")
);

-- CreateTable
CREATE TABLE "event" (
    "id" BIGSERIAL NOT NULL,
    "at" TIMESTAMP(6) NOT NULL,
    "file_id" BIGINT,
    "from_stage" "Stage",
    "to_stage" "Stage",
    "request_ids" INTEGER[],
    "request_id" INTEGER,
    "state" "RequestState",
    "files_total" INTEGER,
    "files_on_disk" INTEGER,
    "files_failed" INTEGER,
    "bytes_total" BIGINT,
    "bytes_on_disk" BIGINT,

    CONSTRAINT "event_pkey" PRIMARY KEY ("id")
);

-- CreateIndex
CREATE UNIQUE INDEX "tape_file_path_key" ON "tape_file"("path");

-- CreateIndex
CREATE INDEX "tape_file_path_trgm_idx" ON "tape_file" USING GIN ("path" gin_trgm_ops);

-- CreateIndex
CREATE UNIQUE INDEX "volume_name_key" ON "volume"("name");

-- CreateIndex
CREATE UNIQUE INDEX "drive_name_key" ON "drive"("name");

-- CreateIndex
CREATE UNIQUE INDEX "drive_volume_id_key" ON "drive"("volume_id");

-- CreateIndex
CREATE UNIQUE INDEX "quota_user_key" ON "quota"("user");

-- CreateIndex
CREATE INDEX "request_quota_id_id_idx" ON "request"("quota_id", "id");

-- CreateIndex
CREATE INDEX "request_retention_idx" ON "request"("retention");

-- CreateIndex
CREATE INDEX "hold_file_id_idx" ON "hold"("file_id");

-- CreateIndex
CREATE UNIQUE INDEX "hold_request_id_ordinal_key" ON "hold"("request_id", "ordinal");

-- CreateIndex
CREATE INDEX "awaited_path_path_idx" ON "awaited_path"("path");

-- CreateIndex
CREATE INDEX "recall_drive_id_idx" ON "recall"("drive_id");

-- CreateIndex
CREATE UNIQUE INDEX "restore_disk_mountpoint_key" ON "restore_disk"("mountpoint");

-- CreateIndex
CREATE UNIQUE INDEX "notification_message_id_key" ON "notification"("message_id");

-- CreateIndex
CREATE UNIQUE INDEX "notification_request_id_kind_key" ON "notification"("request_id", "kind");

-- AddForeignKey
ALTER TABLE "tape_file" ADD CONSTRAINT "tape_file_volume_id_fkey" FOREIGN KEY ("volume_id") REFERENCES "volume"("id") ON DELETE SET NULL ON UPDATE CASCADE;

-- AddForeignKey
ALTER TABLE "tape_file" ADD CONSTRAINT "tape_file_disk_id_fkey" FOREIGN KEY ("disk_id") REFERENCES "restore_disk"("id") ON DELETE SET NULL ON UPDATE CASCADE;

-- AddForeignKey
ALTER TABLE "drive" ADD CONSTRAINT "drive_volume_id_fkey" FOREIGN KEY ("volume_id") REFERENCES "volume"("id") ON DELETE SET NULL ON UPDATE CASCADE;

-- AddForeignKey
ALTER TABLE "request" ADD CONSTRAINT "request_quota_id_fkey" FOREIGN KEY ("quota_id") REFERENCES "quota"("id") ON DELETE RESTRICT ON UPDATE CASCADE;

-- AddForeignKey
ALTER TABLE "hold" ADD CONSTRAINT "hold_request_id_fkey" FOREIGN KEY ("request_id") REFERENCES "request"("id") ON DELETE RESTRICT ON UPDATE CASCADE;

-- AddForeignKey
ALTER TABLE "hold" ADD CONSTRAINT "hold_file_id_fkey" FOREIGN KEY ("file_id") REFERENCES "tape_file"("id") ON DELETE RESTRICT ON UPDATE CASCADE;

-- AddForeignKey
ALTER TABLE "awaited_path" ADD CONSTRAINT "awaited_path_request_id_fkey" FOREIGN KEY ("request_id") REFERENCES "request"("id") ON DELETE RESTRICT ON UPDATE CASCADE;

-- AddForeignKey
ALTER TABLE "recall" ADD CONSTRAINT "recall_file_id_fkey" FOREIGN KEY ("file_id") REFERENCES "tape_file"("id") ON DELETE RESTRICT ON UPDATE CASCADE;

-- AddForeignKey
ALTER TABLE "recall" ADD CONSTRAINT "recall_volume_id_fkey" FOREIGN KEY ("volume_id") REFERENCES "volume"("id") ON DELETE SET NULL ON UPDATE CASCADE;

-- AddForeignKey
ALTER TABLE "recall" ADD CONSTRAINT "recall_drive_id_fkey" FOREIGN KEY ("drive_id") REFERENCES "drive"("id") ON DELETE SET NULL ON UPDATE CASCADE;

-- AddForeignKey
ALTER TABLE "recall" ADD CONSTRAINT "recall_disk_id_fkey" FOREIGN KEY ("disk_id") REFERENCES "restore_disk"("id") ON DELETE SET NULL ON UPDATE CASCADE;

-- AddForeignKey
ALTER TABLE "notification" ADD CONSTRAINT "notification_request_id_fkey" FOREIGN KEY ("request_id") REFERENCES "request"("id") ON DELETE RESTRICT ON UPDATE CASCADE;

-- What the models cannot say.

ALTER TABLE "tape_file" ADD CONSTRAINT "tape_file_size_check" CHECK ("size" >= 0);
ALTER TABLE "quota" ADD CONSTRAINT "quota_check" CHECK ("size" >= 0 AND "used" >= 0);
ALTER TABLE "restore_disk" ADD CONSTRAINT "restore_disk_check" CHECK ("size" >= 0 AND "used" >= 0 AND "reserved" >= 0);
ALTER TABLE "request" ADD CONSTRAINT "request_counts_check"
  CHECK ("files_on_disk" >= 0 AND "files_failed" >= 0 AND "files_on_disk" + "files_failed" <= "files_total"
    AND "bytes_on_disk" >= 0 AND "bytes_on_disk" <= "bytes_total");

-- The queue of a volume in order of position.
CREATE INDEX "recall_queue_idx" ON "recall" ("volume_id", "position", "file_id") WHERE "state" = 'WAITING';
-- Copies in the restore area, and files that an engine is or was busy with.
CREATE INDEX "tape_file_disk_idx" ON "tape_file" ("disk_id") WHERE "disk_id" IS NOT NULL;
CREATE INDEX "tape_file_removal_idx" ON "tape_file" ("id") WHERE "disk_id" IS NOT NULL AND "stage" <> 'RESTORED';
CREATE INDEX "tape_file_restoring_idx" ON "tape_file" ("id") WHERE "stage" IN ('RESTORING', 'RESTORED');
-- Requests to expire, and requests that newly imported files may join.
CREATE INDEX "request_live_idx" ON "request" ("retention") WHERE "state" NOT IN ('EXPIRED', 'CANCELLED');
CREATE INDEX "request_live_pattern_idx" ON "request" ("id") WHERE "state" NOT IN ('EXPIRED', 'CANCELLED') AND "pattern" <> '';
CREATE INDEX "request_unreleased_idx" ON "request" ("id") WHERE NOT "is_released";
CREATE INDEX "notification_pending_idx" ON "notification" ("next_try_at") WHERE "state" = 'PENDING';
CREATE INDEX "event_request_idx" ON "event" ("request_id", "id") WHERE "request_id" IS NOT NULL;

-- Ids are given before the commit, so a reader of `id > last` would pass over rows of transactions that commit later.
-- Writers of events wait for each other until their commit; therefore events are inserted last in a transaction.
CREATE FUNCTION event_order() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  PERFORM pg_advisory_xact_lock(1413563205, 1);
  RETURN NULL;
END;
$$;
CREATE TRIGGER event_order BEFORE INSERT ON "event" FOR EACH STATEMENT EXECUTE FUNCTION event_order();

-- Doorbells: the payload names what to look at, the rows are in the table.
CREATE FUNCTION ring() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  PERFORM pg_notify('tapegate', TG_TABLE_NAME);
  RETURN NULL;
END;
$$;
CREATE TRIGGER event_ring AFTER INSERT ON "event" FOR EACH STATEMENT EXECUTE FUNCTION ring();
CREATE TRIGGER recall_ring AFTER INSERT ON "recall" FOR EACH STATEMENT EXECUTE FUNCTION ring();
CREATE TRIGGER notification_ring AFTER INSERT ON "notification" FOR EACH STATEMENT EXECUTE FUNCTION ring();
