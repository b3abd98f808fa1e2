-- The schema of Tapegate's database. Until 1.0.0 is released, a change of the schema edits this file and prisma/schema.prisma, which
-- describes the tables and columns. This file describes what Prisma cannot express: partial indexes, checks, functions, triggers and views.

CREATE EXTENSION IF NOT EXISTS pg_trgm;

CREATE TYPE "Stage" AS ENUM ('UNVERIFIED', 'ONDISK', 'ONTAPE', 'RESTORING', 'RESTORED');
CREATE TYPE "RequestState" AS ENUM ('QUEUED', 'RESTORING', 'COMPLETED', 'PARTIAL', 'EXPIRED', 'CANCELLED');
CREATE TYPE "RequestFileState" AS ENUM ('WAITING', 'ON_DISK', 'FAILED', 'RELEASED');
CREATE TYPE "RecallState" AS ENUM ('WAITING', 'RUNNING');
CREATE TYPE "ErrorClass" AS ENUM ('TRANSIENT', 'PERMANENT', 'MEDIA', 'SPACE', 'POLICY');
CREATE TYPE "UnresolvedReason" AS ENUM ('UNKNOWN', 'QUOTA_FULL', 'LIMIT');
CREATE TYPE "NotificationKind" AS ENUM ('FIRST_FILE', 'LAST_FILE', 'EXPIRING');
CREATE TYPE "NotificationState" AS ENUM ('PENDING', 'SENT', 'LOGGED', 'REJECTED');
CREATE TYPE "SuspensionKind" AS ENUM ('VOLUME', 'DRIVE', 'USER', 'LIBRARY', 'DISK', 'CLOCK');
CREATE TYPE "SuspensionMode" AS ENUM ('IMMEDIATE', 'DRAINING');
CREATE TYPE "TokenRole" AS ENUM ('USER', 'VIEWER', 'OPERATOR', 'SERVICE');
CREATE TYPE "MemberKind" AS ENUM ('USER', 'GROUP');
CREATE TYPE "PathAction" AS ENUM ('LIST', 'REQUEST', 'FETCH');
CREATE TYPE "RuleKind" AS ENUM ('EVERYBODY', 'USER', 'GROUP');
CREATE TYPE "LibraryContract" AS ENUM ('DRIVE', 'STAGING');
CREATE TYPE "StageRequestProblem" AS ENUM ('UNKNOWN', 'DIRECTORY', 'ELSEWHERE', 'QUOTA_FULL');
CREATE TYPE "StagingState" AS ENUM ('INTENDED', 'ASKED', 'READY', 'RELEASING', 'KEPT');
CREATE TYPE "WebhookEvent" AS ENUM ('REQUEST_STARTED', 'REQUEST_FIRST_FILE', 'REQUEST_COMPLETED', 'REQUEST_PARTIAL', 'REQUEST_EXPIRING', 'REQUEST_ENDED', 'QUOTA_NEARLY_FULL');
CREATE TYPE "WebhookMessageState" AS ENUM ('PENDING', 'SENT', 'GIVEN_UP');

-- Tape systems, volumes and drives ------------------------------------------------------------------------------------

-- Older versions know one library: their volumes and drives belong to the first row, which is inserted below.
CREATE TABLE "library" (
  "id" SERIAL NOT NULL,
  "name" TEXT NOT NULL,
  "kind" TEXT NOT NULL,
  "contract" "LibraryContract" NOT NULL,
  "settings" JSONB NOT NULL DEFAULT '{}',
  "drives" INTEGER,
  "depth_files" INTEGER,
  "depth_bytes" BIGINT,
  "added_at" TIMESTAMP(6) NOT NULL,

  CONSTRAINT "library_pkey" PRIMARY KEY ("id"),
  -- DRIVES is the number of drives of the first library.
  CONSTRAINT "library_first_check" CHECK (("drives" IS NULL) = ("id" = 1))
);
CREATE UNIQUE INDEX "library_name_key" ON "library" ("name");

CREATE TABLE "volume" (
  "id" SERIAL NOT NULL,
  "name" TEXT NOT NULL,
  "used" BIGINT NOT NULL DEFAULT 0,
  "next_position" BIGINT NOT NULL DEFAULT 1,
  "medium" TEXT NOT NULL DEFAULT 'linear',
  "failures" INTEGER NOT NULL DEFAULT 0,
  "failing_since" TIMESTAMP(6),
  "retry_at" TIMESTAMP(6),
  "problem" TEXT,
  "library_id" INTEGER NOT NULL DEFAULT 1,
  "retired_at" TIMESTAMP(6),
  "retired_reason" TEXT,

  CONSTRAINT "volume_pkey" PRIMARY KEY ("id"),
  CONSTRAINT "volume_library_id_fkey" FOREIGN KEY ("library_id") REFERENCES "library" ("id") ON DELETE RESTRICT ON UPDATE CASCADE
);
CREATE UNIQUE INDEX "volume_name_key" ON "volume" ("name");
CREATE INDEX "volume_library_id_idx" ON "volume" ("library_id");
CREATE INDEX "volume_retired_idx" ON "volume" ("id") WHERE "retired_at" IS NOT NULL;

CREATE TABLE "drive" (
  "id" SERIAL NOT NULL,
  "name" TEXT NOT NULL,
  "volume_id" INTEGER,
  "engine_id" UUID,
  "epoch" BIGINT NOT NULL DEFAULT 0,
  "lease_until" TIMESTAMP(6),
  "library_id" INTEGER NOT NULL DEFAULT 1,
  "failures" INTEGER NOT NULL DEFAULT 0,
  "rate" DOUBLE PRECISION,

  CONSTRAINT "drive_pkey" PRIMARY KEY ("id"),
  CONSTRAINT "drive_volume_id_fkey" FOREIGN KEY ("volume_id") REFERENCES "volume" ("id") ON DELETE SET NULL ON UPDATE CASCADE,
  CONSTRAINT "drive_library_id_fkey" FOREIGN KEY ("library_id") REFERENCES "library" ("id") ON DELETE RESTRICT ON UPDATE CASCADE
);
CREATE UNIQUE INDEX "drive_name_key" ON "drive" ("name");
CREATE UNIQUE INDEX "drive_volume_id_key" ON "drive" ("volume_id");
CREATE INDEX "drive_library_id_idx" ON "drive" ("library_id");

CREATE TABLE "library_usage" (
  "library_id" INTEGER NOT NULL,
  "request" TEXT NOT NULL,
  "requests" BIGINT NOT NULL,
  "bytes" BIGINT NOT NULL,

  CONSTRAINT "library_usage_pkey" PRIMARY KEY ("library_id", "request"),
  CONSTRAINT "library_usage_library_id_fkey" FOREIGN KEY ("library_id") REFERENCES "library" ("id") ON DELETE CASCADE ON UPDATE CASCADE
);

-- The restore area ----------------------------------------------------------------------------------------------------

CREATE TABLE "restore_disk" (
  "id" SERIAL NOT NULL,
  "mountpoint" TEXT NOT NULL,
  "size" BIGINT NOT NULL,
  "used" BIGINT NOT NULL DEFAULT 0,
  "reserved" BIGINT NOT NULL DEFAULT 0,
  "failures" INTEGER NOT NULL DEFAULT 0,
  "retry_at" TIMESTAMP(6),
  "reserved_ever" BIGINT NOT NULL DEFAULT 0,
  "marked_at" TIMESTAMP(6),
  "marked_as" TEXT,
  "marker_id" TEXT,
  "folds_names" BOOLEAN,
  "fulls" INTEGER NOT NULL DEFAULT 0,
  "full_at" TIMESTAMP(6),
  "full_until" TIMESTAMP(6),
  "full_reason" TEXT,

  CONSTRAINT "restore_disk_pkey" PRIMARY KEY ("id"),
  CONSTRAINT "restore_disk_check" CHECK ("size" >= 0 AND "used" >= 0 AND "reserved" >= 0)
);
CREATE UNIQUE INDEX "restore_disk_mountpoint_key" ON "restore_disk" ("mountpoint");

-- No foreign key: its checks would wait for recalls that reserve room, and `restore_disk` changes only for its room.
CREATE TABLE "disk_measurement" (
  "disk_id" INTEGER NOT NULL,
  "host" TEXT NOT NULL,
  "free" BIGINT,
  "problem" TEXT,
  "measured_at" TIMESTAMP(6) NOT NULL,

  CONSTRAINT "disk_measurement_pkey" PRIMARY KEY ("disk_id", "host")
);

-- Restore disks whose copies are being compared with their checksums, because their inodes have changed.
CREATE TABLE "disk_comparison" (
  "disk_id" INTEGER NOT NULL,
  "marker_id" TEXT NOT NULL,
  "owner" UUID NOT NULL,
  "at" TIMESTAMP(6) NOT NULL,
  "after" BIGINT NOT NULL,
  "compared" INTEGER NOT NULL,
  "total" INTEGER NOT NULL,

  CONSTRAINT "disk_comparison_pkey" PRIMARY KEY ("disk_id"),
  CONSTRAINT "disk_comparison_disk_id_fkey" FOREIGN KEY ("disk_id") REFERENCES "restore_disk" ("id") ON DELETE CASCADE ON UPDATE CASCADE
);

-- The catalogue -------------------------------------------------------------------------------------------------------

-- The words of a path, for patterns that contain a whole word: the parts between delimiters, as in src/domain/match.ts.
-- tsvector confuses words of more than 2,046 bytes. A path that may contain one has the single word '/', which no path contains.
CREATE FUNCTION "path_words"(path text) RETURNS tsvector LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN octet_length(path) <= 2046
  THEN array_to_tsvector(array_remove(string_to_array(translate(path, '_-.+=,:@~ ', '//////////'), '/'), ''))
  ELSE array_to_tsvector(ARRAY['/']) END;

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
  "changed_disk_id" INTEGER,
  "disk_checksum" TEXT,
  "disk_ctime_ns" BIGINT,
  "disk_ino" BIGINT,
  "gid" BIGINT,
  "mode" INTEGER,
  "mtime" TIMESTAMP(6),
  "uid" BIGINT,
  "checksum_taken" BOOLEAN NOT NULL DEFAULT false,
  "adler32" TEXT,
  "withdrawn_at" TIMESTAMP(6),
  "withdrawn_reason" TEXT,
  "is_unlisted" BOOLEAN NOT NULL DEFAULT false,
  "copy_volume_id" INTEGER,
  "copy_position" BIGINT,
  "copy_error" TEXT,
  "purged_at" TIMESTAMP(6),
  "disk_path" TEXT,
  "tape_path" TEXT,
  "copy_failed_at" TIMESTAMP(6),
  "folded_path" TEXT,

  CONSTRAINT "tape_file_pkey" PRIMARY KEY ("id"),
  CONSTRAINT "tape_file_size_check" CHECK ("size" >= 0),
  CONSTRAINT "tape_file_copy_elsewhere" CHECK ("copy_volume_id" <> "volume_id"),
  CONSTRAINT "tape_file_volume_id_fkey" FOREIGN KEY ("volume_id") REFERENCES "volume" ("id") ON DELETE SET NULL ON UPDATE CASCADE,
  CONSTRAINT "tape_file_disk_id_fkey" FOREIGN KEY ("disk_id") REFERENCES "restore_disk" ("id") ON DELETE SET NULL ON UPDATE CASCADE,
  CONSTRAINT "tape_file_changed_disk_id_fkey" FOREIGN KEY ("changed_disk_id") REFERENCES "restore_disk" ("id") ON DELETE SET NULL ON UPDATE CASCADE,
  CONSTRAINT "tape_file_copy_volume_id_fkey" FOREIGN KEY ("copy_volume_id") REFERENCES "volume" ("id") ON DELETE RESTRICT ON UPDATE CASCADE
);
CREATE UNIQUE INDEX "tape_file_path_key" ON "tape_file" ("path");
CREATE INDEX "tape_file_path_trgm_idx" ON "tape_file" USING GIN ("path" gin_trgm_ops);
-- Copies in the restore area, and files that an engine is or was restoring.
CREATE INDEX "tape_file_disk_idx" ON "tape_file" ("disk_id", "id") WHERE "disk_id" IS NOT NULL;
CREATE INDEX "tape_file_removal_idx" ON "tape_file" ("id") WHERE "disk_id" IS NOT NULL AND "stage" <> 'RESTORED';
CREATE INDEX "tape_file_restoring_idx" ON "tape_file" ("id") WHERE "stage" IN ('RESTORING', 'RESTORED');
-- The files of a volume in order of position.
CREATE INDEX "tape_file_place_idx" ON "tape_file" ("volume_id", "position") WHERE "volume_id" IS NOT NULL;
CREATE INDEX "tape_file_changed_idx" ON "tape_file" ("id") WHERE "changed_disk_id" IS NOT NULL;
-- Byte order: a collation ignores slashes, so it cannot find the paths below a prefix.
CREATE INDEX "tape_file_path_prefix_idx" ON "tape_file" ("path" text_pattern_ops);
CREATE INDEX "tape_file_words_idx" ON "tape_file" USING GIN (path_words("path"));
-- Files whose tape copy is not confirmed yet.
CREATE INDEX "tape_file_unconfirmed_idx" ON "tape_file" ("volume_id", "position", "id")
  WHERE "stage" = 'UNVERIFIED' AND "verified" IS NULL AND "checksum" IS NOT NULL;
CREATE INDEX "tape_file_withdrawn_idx" ON "tape_file" ("path") WHERE "withdrawn_at" IS NOT NULL;
-- Lookups by path, and by the directories above it.
CREATE INDEX "tape_file_disk_path_idx" ON "tape_file" ("disk_path" text_pattern_ops) WHERE "disk_path" IS NOT NULL;
-- Contains only copies on disks that fold names.
CREATE INDEX "tape_file_folded_path_idx" ON "tape_file" ("folded_path") WHERE "folded_path" IS NOT NULL;
CREATE INDEX "tape_file_tape_path_idx" ON "tape_file" ("tape_path") WHERE "tape_path" IS NOT NULL;
-- Moving a volume checks whether a position on another volume is free.
CREATE INDEX "tape_file_copy_place_idx" ON "tape_file" ("copy_volume_id", "copy_position") WHERE "copy_volume_id" IS NOT NULL;

-- Changed copies that were kept when their files were restored at other paths.
CREATE TABLE "kept_copy" (
  "id" BIGSERIAL NOT NULL,
  "file_id" BIGINT NOT NULL,
  "disk_id" INTEGER NOT NULL,
  "path" TEXT NOT NULL,

  CONSTRAINT "kept_copy_pkey" PRIMARY KEY ("id"),
  CONSTRAINT "kept_copy_file_id_fkey" FOREIGN KEY ("file_id") REFERENCES "tape_file" ("id") ON DELETE CASCADE ON UPDATE CASCADE,
  CONSTRAINT "kept_copy_disk_id_fkey" FOREIGN KEY ("disk_id") REFERENCES "restore_disk" ("id") ON DELETE CASCADE ON UPDATE CASCADE
);
CREATE UNIQUE INDEX "kept_copy_path_disk_id_key" ON "kept_copy" ("path", "disk_id");
CREATE INDEX "kept_copy_path_idx" ON "kept_copy" ("path" text_pattern_ops);
CREATE INDEX "kept_copy_file_id_idx" ON "kept_copy" ("file_id");

CREATE TABLE "verification" (
  "file_id" BIGINT NOT NULL,
  "attempts" INTEGER NOT NULL,
  "error_class" "ErrorClass" NOT NULL,
  "error" TEXT NOT NULL,
  "at" TIMESTAMP(6) NOT NULL,
  "not_before" TIMESTAMP(6),

  CONSTRAINT "verification_pkey" PRIMARY KEY ("file_id"),
  CONSTRAINT "verification_file_id_fkey" FOREIGN KEY ("file_id") REFERENCES "tape_file" ("id") ON DELETE RESTRICT ON UPDATE CASCADE
);

CREATE TABLE "removal" (
  "file_id" BIGINT NOT NULL,
  "claimed_until" TIMESTAMP(6) NOT NULL,

  CONSTRAINT "removal_pkey" PRIMARY KEY ("file_id")
);

CREATE TABLE "directory" (
  "path" TEXT NOT NULL,
  "mode" INTEGER NOT NULL,
  "gid" BIGINT,

  CONSTRAINT "directory_pkey" PRIMARY KEY ("path")
);

CREATE TABLE "stale_partial_file" (
  "id" BIGSERIAL NOT NULL,
  "file_id" BIGINT NOT NULL,
  "disk_id" INTEGER NOT NULL,
  "drive_id" INTEGER NOT NULL,
  "epoch" BIGINT NOT NULL,
  "size" BIGINT NOT NULL,
  "ino" BIGINT,
  "mtime_ns" BIGINT,
  "checksum" TEXT,
  "path" TEXT,

  CONSTRAINT "stale_partial_file_pkey" PRIMARY KEY ("id"),
  CONSTRAINT "stale_partial_file_file_id_fkey" FOREIGN KEY ("file_id") REFERENCES "tape_file" ("id") ON DELETE CASCADE ON UPDATE CASCADE,
  CONSTRAINT "stale_partial_file_disk_id_fkey" FOREIGN KEY ("disk_id") REFERENCES "restore_disk" ("id") ON DELETE CASCADE ON UPDATE CASCADE
);
CREATE INDEX "stale_partial_file_file_id_idx" ON "stale_partial_file" ("file_id");

CREATE TABLE "adopted" (
  "kind" TEXT NOT NULL,
  "id" BIGINT NOT NULL,
  "digest" TEXT NOT NULL,
  "source_path" TEXT,
  "at" TIMESTAMP(6) NOT NULL,
  "source_disk_id" INTEGER,
  "source_ino" BIGINT,
  "source_mtime_ns" BIGINT,
  "source_size" BIGINT,

  CONSTRAINT "adopted_pkey" PRIMARY KEY ("kind", "id")
);

CREATE TABLE "link_root" (
  "id" INTEGER NOT NULL DEFAULT 1,
  "path" TEXT,

  CONSTRAINT "link_root_pkey" PRIMARY KEY ("id"),
  CONSTRAINT "link_root_id_check" CHECK ("id" = 1)
);

CREATE TABLE "archive_link" (
  "file_id" BIGINT NOT NULL,
  "at" TEXT,
  "target" TEXT,
  "is_there" BOOLEAN NOT NULL DEFAULT false,
  "change" BIGINT NOT NULL DEFAULT 0,
  "check_at" TIMESTAMP(6),
  "problem" TEXT,

  CONSTRAINT "archive_link_pkey" PRIMARY KEY ("file_id"),
  CONSTRAINT "archive_link_file_id_fkey" FOREIGN KEY ("file_id") REFERENCES "tape_file" ("id") ON DELETE RESTRICT ON UPDATE CASCADE
);
CREATE INDEX "archive_link_check_at_file_id_idx" ON "archive_link" ("check_at", "file_id");

-- Users and their quotas ----------------------------------------------------------------------------------------------

CREATE TABLE "quota" (
  "id" SERIAL NOT NULL,
  "user" TEXT NOT NULL,
  "size" BIGINT NOT NULL,
  "used" BIGINT NOT NULL DEFAULT 0,
  "email" TEXT NOT NULL DEFAULT '',
  "notes" TEXT NOT NULL DEFAULT '',
  "drive_seconds" DOUBLE PRECISION NOT NULL DEFAULT 0,
  "drive_seconds_at" TIMESTAMP(6),
  "weight" DOUBLE PRECISION NOT NULL DEFAULT 1,
  "removed_at" TIMESTAMP(6),
  "unresolved_paths" INTEGER NOT NULL DEFAULT 0,

  CONSTRAINT "quota_pkey" PRIMARY KEY ("id"),
  CONSTRAINT "quota_check" CHECK ("size" >= 0 AND "used" >= 0),
  CONSTRAINT "quota_weight_check" CHECK ("weight" > 0 AND "drive_seconds" >= 0)
);
CREATE UNIQUE INDEX "quota_user_key" ON "quota" ("user");

CREATE TABLE "quota_member" (
  "quota_id" INTEGER NOT NULL,
  "kind" "MemberKind" NOT NULL,
  "name" TEXT NOT NULL,
  "is_manager" BOOLEAN NOT NULL DEFAULT false,
  "ordinal" BIGSERIAL NOT NULL,

  CONSTRAINT "quota_member_pkey" PRIMARY KEY ("quota_id", "kind", "name"),
  CONSTRAINT "quota_member_quota_id_fkey" FOREIGN KEY ("quota_id") REFERENCES "quota" ("id") ON DELETE RESTRICT ON UPDATE CASCADE
);
CREATE INDEX "quota_member_kind_name_idx" ON "quota_member" ("kind", "name");

CREATE TABLE "quota_history" (
  "quota_id" INTEGER NOT NULL,
  "at" TIMESTAMP(6) NOT NULL,
  "used" BIGINT NOT NULL,
  "size" BIGINT NOT NULL,

  CONSTRAINT "quota_history_pkey" PRIMARY KEY ("quota_id", "at"),
  CONSTRAINT "quota_history_quota_id_fkey" FOREIGN KEY ("quota_id") REFERENCES "quota" ("id") ON DELETE RESTRICT ON UPDATE CASCADE
);
CREATE INDEX "quota_history_at_idx" ON "quota_history" ("at");

CREATE TABLE "nearly_full_quota" (
  "quota_id" INTEGER NOT NULL,
  "since" TIMESTAMP(6) NOT NULL,

  CONSTRAINT "nearly_full_quota_pkey" PRIMARY KEY ("quota_id")
);

-- Requests ------------------------------------------------------------------------------------------------------------

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
  "max_bytes" BIGINT,
  "max_files" INTEGER,
  "priority" INTEGER NOT NULL DEFAULT 0,
  "made_by" TEXT,
  "ruled_by" TEXT,
  "ruled_groups" TEXT[],
  "excluded_size" BIGINT,
  "trace_parent" TEXT,

  CONSTRAINT "request_pkey" PRIMARY KEY ("id"),
  CONSTRAINT "request_counts_check" CHECK (
    "files_on_disk" >= 0 AND "files_failed" >= 0 AND "files_on_disk" + "files_failed" <= "files_total"
    AND "bytes_on_disk" >= 0 AND "bytes_on_disk" <= "bytes_total"),
  CONSTRAINT "request_quota_id_fkey" FOREIGN KEY ("quota_id") REFERENCES "quota" ("id") ON DELETE RESTRICT ON UPDATE CASCADE
);
CREATE INDEX "request_quota_id_id_idx" ON "request" ("quota_id", "id");
CREATE INDEX "request_retention_idx" ON "request" ("retention");
-- Requests to expire, and requests that newly imported files may join.
CREATE INDEX "request_live_idx" ON "request" ("retention") WHERE "state" NOT IN ('EXPIRED', 'CANCELLED');
CREATE INDEX "request_live_pattern_idx" ON "request" ("id") WHERE "state" NOT IN ('EXPIRED', 'CANCELLED') AND "pattern" <> '';
CREATE INDEX "request_unreleased_idx" ON "request" ("id") WHERE NOT "is_released";
CREATE INDEX "request_live_quota_idx" ON "request" ("quota_id") WHERE "state" NOT IN ('EXPIRED', 'CANCELLED');
CREATE INDEX "request_excluded_idx" ON "request" ("id") WHERE "excluded_size" IS NOT NULL;

CREATE TABLE "idempotency_key" (
  "owner" TEXT NOT NULL,
  "key" TEXT NOT NULL,
  "input_digest" TEXT NOT NULL,
  "made_at" TIMESTAMP(6) NOT NULL,
  "request_id" INTEGER,

  CONSTRAINT "idempotency_key_pkey" PRIMARY KEY ("owner", "key"),
  CONSTRAINT "idempotency_key_request_id_fkey" FOREIGN KEY ("request_id") REFERENCES "request" ("id") ON DELETE RESTRICT ON UPDATE CASCADE
);
CREATE INDEX "idempotency_key_made_at_idx" ON "idempotency_key" ("made_at");

CREATE TABLE "request_file" (
  "request_id" INTEGER NOT NULL,
  "file_id" BIGINT NOT NULL,
  "ordinal" INTEGER NOT NULL,
  "size" BIGINT NOT NULL,
  "state" "RequestFileState" NOT NULL DEFAULT 'WAITING',
  "error_class" "ErrorClass",
  "error" TEXT,
  "is_ended" BOOLEAN NOT NULL DEFAULT false,

  CONSTRAINT "request_file_pkey" PRIMARY KEY ("request_id", "file_id"),
  CONSTRAINT "request_file_request_id_fkey" FOREIGN KEY ("request_id") REFERENCES "request" ("id") ON DELETE RESTRICT ON UPDATE CASCADE,
  CONSTRAINT "request_file_file_id_fkey" FOREIGN KEY ("file_id") REFERENCES "tape_file" ("id") ON DELETE RESTRICT ON UPDATE CASCADE
);
-- Both are partial, so that a lookup by request and file can only use the primary key. With statistics of small requests, PostgreSQL
-- expects the same cost for each index, and would read a large request, or all requests of a popular file, for each lookup.
-- The first finds the live requests that contain a file, regardless of how many ended ones do.
CREATE INDEX "request_file_file_id_idx" ON "request_file" ("file_id") WHERE NOT "is_ended";
-- Queries in this order contain `ordinal > 0`, which is true for all rows.
CREATE UNIQUE INDEX "request_file_request_id_ordinal_key" ON "request_file" ("request_id", "ordinal") WHERE "ordinal" > 0;

CREATE TABLE "unresolved_path" (
  "request_id" INTEGER NOT NULL,
  "path" TEXT NOT NULL,
  "ordinal" INTEGER NOT NULL,
  "reason" "UnresolvedReason" NOT NULL DEFAULT 'UNKNOWN',

  CONSTRAINT "unresolved_path_pkey" PRIMARY KEY ("request_id", "path"),
  CONSTRAINT "unresolved_path_request_id_fkey" FOREIGN KEY ("request_id") REFERENCES "request" ("id") ON DELETE RESTRICT ON UPDATE CASCADE
);
CREATE INDEX "unresolved_path_path_idx" ON "unresolved_path" ("path");
-- The first unresolved path of a request that exceeds the quota, and the first that exceeds the request's limit.
CREATE INDEX "unresolved_path_request_id_reason_path_idx" ON "unresolved_path" ("request_id", "reason", "path");

CREATE TABLE "stage_request" (
  "id" UUID NOT NULL,
  "quota_id" INTEGER NOT NULL,
  "made_at" TIMESTAMP(6) NOT NULL,
  "cancelled_at" TIMESTAMP(6),
  "unstaged" INTEGER NOT NULL DEFAULT 0,

  CONSTRAINT "stage_request_pkey" PRIMARY KEY ("id"),
  CONSTRAINT "stage_request_quota_id_fkey" FOREIGN KEY ("quota_id") REFERENCES "quota" ("id") ON DELETE RESTRICT ON UPDATE CASCADE
);
CREATE INDEX "stage_request_quota_id_idx" ON "stage_request" ("quota_id");
CREATE INDEX "stage_request_made_at_idx" ON "stage_request" ("made_at");

CREATE TABLE "stage_request_file" (
  "stage_request_id" UUID NOT NULL,
  "path" TEXT NOT NULL,
  "given" TEXT NOT NULL,
  "ordinal" INTEGER NOT NULL,
  "request_id" INTEGER,
  "file_id" BIGINT,
  "problem" "StageRequestProblem",
  "was_on_disk" BOOLEAN NOT NULL DEFAULT false,

  CONSTRAINT "stage_request_file_pkey" PRIMARY KEY ("stage_request_id", "path"),
  CONSTRAINT "stage_request_file_request_or_problem" CHECK (
    ("request_id" IS NULL) = ("problem" IS NOT NULL) AND ("request_id" IS NULL OR "file_id" IS NOT NULL)),
  CONSTRAINT "stage_request_file_stage_request_id_fkey" FOREIGN KEY ("stage_request_id") REFERENCES "stage_request" ("id") ON DELETE CASCADE ON UPDATE CASCADE,
  CONSTRAINT "stage_request_file_request_id_fkey" FOREIGN KEY ("request_id") REFERENCES "request" ("id") ON DELETE SET NULL ON UPDATE CASCADE,
  CONSTRAINT "stage_request_file_file_id_fkey" FOREIGN KEY ("file_id") REFERENCES "tape_file" ("id") ON DELETE SET NULL ON UPDATE CASCADE
);
CREATE INDEX "stage_request_file_file_id_idx" ON "stage_request_file" ("file_id");
-- Clients release files by the paths that they staged. Such a path may belong to another file by now.
CREATE INDEX "stage_request_file_path_idx" ON "stage_request_file" ("path");

-- Work of the engines -------------------------------------------------------------------------------------------------

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
  "checksum" TEXT,
  "copy_ino" BIGINT,
  "copy_mtime_ns" BIGINT,
  "earlier_tries" INTEGER NOT NULL DEFAULT 0,

  CONSTRAINT "recall_pkey" PRIMARY KEY ("file_id"),
  CONSTRAINT "recall_file_id_fkey" FOREIGN KEY ("file_id") REFERENCES "tape_file" ("id") ON DELETE RESTRICT ON UPDATE CASCADE,
  CONSTRAINT "recall_volume_id_fkey" FOREIGN KEY ("volume_id") REFERENCES "volume" ("id") ON DELETE SET NULL ON UPDATE CASCADE,
  CONSTRAINT "recall_drive_id_fkey" FOREIGN KEY ("drive_id") REFERENCES "drive" ("id") ON DELETE SET NULL ON UPDATE CASCADE,
  CONSTRAINT "recall_disk_id_fkey" FOREIGN KEY ("disk_id") REFERENCES "restore_disk" ("id") ON DELETE SET NULL ON UPDATE CASCADE
);
CREATE INDEX "recall_drive_id_idx" ON "recall" ("drive_id");
-- The queue of a volume in order of position.
CREATE INDEX "recall_queue_idx" ON "recall" ("volume_id", "position", "file_id") WHERE "state" = 'WAITING';
-- Recalls that wait for room on a restore disk, oldest first, without reading the rest of the queue.
CREATE INDEX "recall_room_idx" ON "recall" ("created_at", "file_id") INCLUDE ("size") WHERE "not_before" = 'infinity';

CREATE TABLE "staging" (
  "file_id" BIGINT NOT NULL,
  "library_id" INTEGER NOT NULL,
  "state" "StagingState" NOT NULL DEFAULT 'INTENDED',
  "batch" UUID NOT NULL,
  "remote_id" TEXT,
  "size" BIGINT NOT NULL,
  "attempts" INTEGER NOT NULL DEFAULT 0,
  "asked_at" TIMESTAMP(6) NOT NULL,
  "since" TIMESTAMP(6) NOT NULL,
  "due_at" TIMESTAMP(6) NOT NULL,
  "ready_until" TIMESTAMP(6),

  CONSTRAINT "staging_pkey" PRIMARY KEY ("file_id", "library_id"),
  CONSTRAINT "staging_file_id_fkey" FOREIGN KEY ("file_id") REFERENCES "tape_file" ("id") ON DELETE RESTRICT ON UPDATE CASCADE,
  CONSTRAINT "staging_library_id_fkey" FOREIGN KEY ("library_id") REFERENCES "library" ("id") ON DELETE RESTRICT ON UPDATE CASCADE
);
CREATE INDEX "staging_library_id_state_due_at_idx" ON "staging" ("library_id", "state", "due_at");
-- Files that count towards the limits of outstanding stage requests of a library.
CREATE INDEX "staging_open_idx" ON "staging" ("library_id", "file_id") INCLUDE ("size") WHERE "state" IN ('INTENDED', 'ASKED', 'READY');

CREATE TABLE "stager" (
  "library_id" INTEGER NOT NULL,
  "engine_id" UUID,
  "epoch" BIGINT NOT NULL DEFAULT 0,
  "lease_until" TIMESTAMP(6),
  "failures" INTEGER NOT NULL DEFAULT 0,
  "rest_until" TIMESTAMP(6),
  "problem" TEXT,
  "read_failures" INTEGER NOT NULL DEFAULT 0,
  "read_rest_until" TIMESTAMP(6),
  "read_problem" TEXT,
  "waits" DOUBLE PRECISION[] DEFAULT ARRAY[]::DOUBLE PRECISION[],

  CONSTRAINT "stager_pkey" PRIMARY KEY ("library_id"),
  CONSTRAINT "stager_library_id_fkey" FOREIGN KEY ("library_id") REFERENCES "library" ("id") ON DELETE CASCADE ON UPDATE CASCADE
);

CREATE TABLE "suspension" (
  "kind" "SuspensionKind" NOT NULL,
  "name" TEXT NOT NULL,
  "mode" "SuspensionMode" NOT NULL,
  "reason" TEXT NOT NULL,
  "since" TIMESTAMP(6) NOT NULL,
  "retry_at" TIMESTAMP(6),

  CONSTRAINT "suspension_pkey" PRIMARY KEY ("kind", "name")
);

CREATE TABLE "engine_process" (
  "id" UUID NOT NULL,
  "engine_id" UUID NOT NULL,
  "host" TEXT NOT NULL,
  "drives" INTEGER NOT NULL,
  "reach" INTEGER NOT NULL,
  "weight" INTEGER NOT NULL,
  "asks_until" TIMESTAMP(6) NOT NULL,
  "library_id" INTEGER NOT NULL DEFAULT 1,

  CONSTRAINT "engine_process_pkey" PRIMARY KEY ("id")
);

CREATE TABLE "running_process" (
  "id" UUID NOT NULL,
  "kind" TEXT NOT NULL,
  "host" TEXT NOT NULL,
  "pid" INTEGER NOT NULL,
  "version" TEXT NOT NULL,
  "started_at" TIMESTAMP(6) NOT NULL,
  "seen_at" TIMESTAMP(6) NOT NULL,
  "lag_seconds" DOUBLE PRECISION NOT NULL,

  CONSTRAINT "running_process_pkey" PRIMARY KEY ("id")
);

-- One row. A copy of the database has the same identity: `location` and `owner_stamp` show that it is a copy.
CREATE TABLE "site_identity" (
  "id" INTEGER NOT NULL DEFAULT 1,
  "identity" UUID NOT NULL,
  "database" UUID NOT NULL,
  "location" JSONB,
  "is_stamping" BOOLEAN NOT NULL DEFAULT false,
  "fenced" TEXT,
  "problem" TEXT,

  CONSTRAINT "site_identity_pkey" PRIMARY KEY ("id"),
  CONSTRAINT "site_identity_one" CHECK ("id" = 1)
);

CREATE TABLE "owner_stamp" (
  "epoch" UUID NOT NULL,
  "number" INTEGER NOT NULL,

  CONSTRAINT "owner_stamp_pkey" PRIMARY KEY ("epoch")
);

CREATE TABLE "foreign_directory" (
  "path" TEXT NOT NULL,
  "host" TEXT NOT NULL,
  "problem" TEXT NOT NULL,
  "seen_at" TIMESTAMP(6) NOT NULL,

  CONSTRAINT "foreign_directory_pkey" PRIMARY KEY ("path", "host")
);

-- Events, mail and webhooks -------------------------------------------------------------------------------------------

-- Events are numbered after their commit, so no writer holds a lock until its commit to keep their order.
--
-- Each INSERT creates a batch, which its transaction commits together with the events. A listener numbers all visible batches in one
-- statement: a batch gets a range of numbers, and an event the number at its offset. A million events then cost one row, and a transaction
-- that stays open delays no others.
--
-- A batch is pruned in steps: it is marked, and then its events are deleted. The last pruned batch remains, and marks the first event.
CREATE TABLE "event_batch" (
  "id" BIGSERIAL NOT NULL,
  "transaction_id" BIGINT NOT NULL,
  "first_id" BIGINT NOT NULL,
  "last_id" BIGINT NOT NULL,
  "first_number" BIGINT,
  "last_number" BIGINT,
  "is_pruned" BOOLEAN NOT NULL DEFAULT false,

  CONSTRAINT "event_batch_pkey" PRIMARY KEY ("id")
);
-- Batches without numbers by transaction, and batches with numbers by number.
CREATE INDEX "event_batch_open_idx" ON "event_batch" ("transaction_id") WHERE "last_number" IS NULL;
CREATE UNIQUE INDEX "event_batch_number_idx" ON "event_batch" ("last_number") WHERE "last_number" IS NOT NULL;
CREATE INDEX "event_batch_pruned_idx" ON "event_batch" ("last_number") WHERE "is_pruned";

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
  "batch_id" BIGINT NOT NULL DEFAULT NULLIF(current_setting('tapegate.event_batch', true), '')::bigint,

  CONSTRAINT "event_pkey" PRIMARY KEY ("id")
);
CREATE INDEX "event_request_idx" ON "event" ("request_id", "id") WHERE "request_id" IS NOT NULL;

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
  "claimed_at" TIMESTAMP(6),
  "sent_at" TIMESTAMP(6),
  "quota_id" INTEGER,
  "deferred_since" TIMESTAMP(6),
  "deferrals" INTEGER NOT NULL DEFAULT 0,
  "expires_at" TIMESTAMP(6),

  CONSTRAINT "notification_pkey" PRIMARY KEY ("id"),
  CONSTRAINT "notification_request_id_fkey" FOREIGN KEY ("request_id") REFERENCES "request" ("id") ON DELETE RESTRICT ON UPDATE CASCADE
);
CREATE UNIQUE INDEX "notification_message_id_key" ON "notification" ("message_id");
CREATE UNIQUE INDEX "notification_request_id_kind_key" ON "notification" ("request_id", "kind");
CREATE INDEX "notification_pending_idx" ON "notification" ("next_try_at") WHERE "state" = 'PENDING';
-- The last claims of all emails and of a user's emails, for the rate limits.
CREATE INDEX "notification_claimed_idx" ON "notification" ("claimed_at");
CREATE INDEX "notification_user_claimed_idx" ON "notification" ("quota_id", "claimed_at");
-- Emails of ended requests whose text is still to be removed.
CREATE INDEX "notification_told_idx" ON "notification" ("request_id") WHERE "state" <> 'PENDING' AND "body" <> '';
-- Waiting emails by user.
CREATE INDEX "notification_waiting_idx" ON "notification" ("quota_id", "next_try_at", "id") WHERE "state" = 'PENDING';

CREATE TABLE "sequence_timeline" (
  "id" INTEGER NOT NULL DEFAULT 1,
  "timeline" INTEGER NOT NULL,

  CONSTRAINT "sequence_timeline_pkey" PRIMARY KEY ("id"),
  CONSTRAINT "sequence_timeline_one" CHECK ("id" = 1)
);

CREATE TABLE "clock_reading" (
  "boot" TEXT NOT NULL,
  "at" TIMESTAMP(6) NOT NULL,
  "running_seconds" DOUBLE PRECISION NOT NULL,
  "elapsed_seconds" DOUBLE PRECISION NOT NULL,
  "ahead_seconds" DOUBLE PRECISION NOT NULL DEFAULT 0,
  "host_seconds" DOUBLE PRECISION,
  "made_at" TIMESTAMP(6) NOT NULL,

  CONSTRAINT "clock_reading_pkey" PRIMARY KEY ("boot")
);

CREATE TABLE "mail_sender" (
  "id" INTEGER NOT NULL DEFAULT 1,
  "seen_at" TIMESTAMP(6) NOT NULL,

  CONSTRAINT "mail_sender_pkey" PRIMARY KEY ("id"),
  CONSTRAINT "mail_sender_one" CHECK ("id" = 1)
);

CREATE TABLE "webhook" (
  "id" SERIAL NOT NULL,
  "quota_id" INTEGER,
  "url" TEXT NOT NULL,
  "events" "WebhookEvent"[],
  "note" TEXT NOT NULL,
  "secret" TEXT NOT NULL,
  "old_secret" TEXT,
  "old_secret_until" TIMESTAMP(6),
  "made_at" TIMESTAMP(6) NOT NULL,
  "made_by" TEXT NOT NULL,
  "owner" TEXT NOT NULL,
  "disabled_at" TIMESTAMP(6),
  "disabled_reason" TEXT,
  "failures" INTEGER NOT NULL DEFAULT 0,
  "failing_since" TIMESTAMP(6),
  "last_error" TEXT,
  "sent_at" TIMESTAMP(6),
  "next_try_at" TIMESTAMP(6) NOT NULL,

  CONSTRAINT "webhook_pkey" PRIMARY KEY ("id"),
  CONSTRAINT "webhook_quota_id_fkey" FOREIGN KEY ("quota_id") REFERENCES "quota" ("id") ON DELETE RESTRICT ON UPDATE CASCADE
);
CREATE INDEX "webhook_quota_id_idx" ON "webhook" ("quota_id");

CREATE TABLE "webhook_message" (
  "id" BIGSERIAL NOT NULL,
  "webhook_id" INTEGER NOT NULL,
  "message_id" TEXT NOT NULL,
  "type" TEXT NOT NULL,
  "quota_id" INTEGER,
  "request_id" INTEGER,
  "body" TEXT NOT NULL,
  "state" "WebhookMessageState" NOT NULL DEFAULT 'PENDING',
  "attempts" INTEGER NOT NULL DEFAULT 0,
  "created_at" TIMESTAMP(6) NOT NULL,
  "next_try_at" TIMESTAMP(6) NOT NULL,
  "sent_at" TIMESTAMP(6),
  "last_error" TEXT,

  CONSTRAINT "webhook_message_pkey" PRIMARY KEY ("id"),
  CONSTRAINT "webhook_message_webhook_id_fkey" FOREIGN KEY ("webhook_id") REFERENCES "webhook" ("id") ON DELETE CASCADE ON UPDATE CASCADE
);
CREATE UNIQUE INDEX "webhook_message_message_id_key" ON "webhook_message" ("message_id");
CREATE INDEX "webhook_message_webhook_id_id_idx" ON "webhook_message" ("webhook_id", "id");
CREATE INDEX "webhook_message_created_at_idx" ON "webhook_message" ("created_at");
CREATE INDEX "webhook_message_due_idx" ON "webhook_message" ("webhook_id", "next_try_at", "id") WHERE "state" = 'PENDING';

CREATE TABLE "webhook_cursor" (
  "id" INTEGER NOT NULL DEFAULT 1,
  "last" BIGINT NOT NULL,

  CONSTRAINT "webhook_cursor_pkey" PRIMARY KEY ("id"),
  CONSTRAINT "webhook_cursor_id_check" CHECK ("id" = 1)
);

CREATE TABLE "webhook_request" (
  "request_id" INTEGER NOT NULL,
  "state" "RequestState" NOT NULL,
  "is_started" BOOLEAN NOT NULL,
  "has_first_file" BOOLEAN NOT NULL,
  "expires_at" TIMESTAMP(6),

  CONSTRAINT "webhook_request_pkey" PRIMARY KEY ("request_id")
);

-- Access and audit ----------------------------------------------------------------------------------------------------

CREATE TABLE "api_token" (
  "id" SERIAL NOT NULL,
  "hash" BYTEA NOT NULL,
  "name" TEXT NOT NULL,
  "role" "TokenRole" NOT NULL,
  "quotas" TEXT[] NOT NULL DEFAULT '{}',
  "is_read_only" BOOLEAN NOT NULL DEFAULT false,
  "note" TEXT NOT NULL DEFAULT '',
  "made_at" TIMESTAMP(6) NOT NULL,
  "made_by" TEXT NOT NULL,
  "expires_at" TIMESTAMP(6),
  "revoked_at" TIMESTAMP(6),
  "used_at" TIMESTAMP(6),

  CONSTRAINT "api_token_pkey" PRIMARY KEY ("id")
);
CREATE UNIQUE INDEX "api_token_hash_key" ON "api_token" ("hash");

CREATE TABLE "path_rule" (
  "id" SERIAL NOT NULL,
  "prefix" TEXT NOT NULL,
  "action" "PathAction" NOT NULL,
  "kind" "RuleKind" NOT NULL,
  "name" TEXT NOT NULL DEFAULT '',

  CONSTRAINT "path_rule_pkey" PRIMARY KEY ("id")
);
CREATE UNIQUE INDEX "path_rule_prefix_action_kind_name_key" ON "path_rule" ("prefix", "action", "kind", "name");

CREATE TABLE "legacy_use" (
  "id" BIGSERIAL NOT NULL,
  "day" TIMESTAMP(6) NOT NULL,
  "endpoint" TEXT NOT NULL,
  "address" TEXT NOT NULL,
  "user" TEXT NOT NULL,
  "uses" BIGINT NOT NULL,
  "last_at" TIMESTAMP(6) NOT NULL,
  "refused" BIGINT NOT NULL DEFAULT 0,

  CONSTRAINT "legacy_use_pkey" PRIMARY KEY ("id")
);
CREATE UNIQUE INDEX "legacy_use_day_endpoint_address_user_key" ON "legacy_use" ("day", "endpoint", "address", "user");

CREATE TABLE "audit" (
  "id" BIGSERIAL NOT NULL,
  "at" TIMESTAMP(6) NOT NULL,
  "who" TEXT NOT NULL,
  "way" TEXT NOT NULL,
  "token_id" INTEGER,
  "address" TEXT,
  "operation" TEXT NOT NULL,
  "kind" TEXT NOT NULL,
  "object" TEXT NOT NULL,
  "given" JSONB NOT NULL DEFAULT '{}',
  "result" TEXT NOT NULL,
  "count" INTEGER NOT NULL DEFAULT 1,

  CONSTRAINT "audit_pkey" PRIMARY KEY ("id")
);
CREATE INDEX "audit_at_id_idx" ON "audit" ("at", "id");
CREATE INDEX "audit_who_id_idx" ON "audit" ("who", "id");
CREATE INDEX "audit_operation_id_idx" ON "audit" ("operation", "id");
CREATE INDEX "audit_object_kind_id_idx" ON "audit" ("object", "kind", "id");

-- The site ------------------------------------------------------------------------------------------------------------

CREATE TABLE "site_history" (
  "at" TIMESTAMP(6) NOT NULL,
  "files_restored" INTEGER NOT NULL DEFAULT 0,
  "bytes_restored" BIGINT NOT NULL DEFAULT 0,
  "files_failed" INTEGER NOT NULL DEFAULT 0,
  "files_waiting" INTEGER,
  "oldest_seconds" DOUBLE PRECISION,
  "drives_in_use" DOUBLE PRECISION,
  "drives" INTEGER,
  "up_to" BIGINT NOT NULL,

  CONSTRAINT "site_history_pkey" PRIMARY KEY ("at")
);

CREATE TABLE "oldest_program" (
  "migration" TEXT NOT NULL,
  "program" TEXT NOT NULL,

  CONSTRAINT "oldest_program_pkey" PRIMARY KEY ("migration")
);

-- Views ---------------------------------------------------------------------------------------------------------------

-- The request files that count: those of live requests that are not released.
CREATE VIEW "live_request_file" AS
  SELECT h.request_id, h.file_id, h.ordinal, h.size, h.state, r.quota_id, r.priority, r.request_date
  FROM "request_file" h JOIN "request" r ON r.id = h.request_id
  WHERE r.state NOT IN ('EXPIRED', 'CANCELLED') AND NOT h.is_ended AND h.state <> 'RELEASED';

-- Suspensions by the id of the object instead of its name. A retired volume counts as suspended.
CREATE VIEW "suspended_volume" AS
  SELECT v.id AS volume_id, s.mode, s.reason FROM "suspension" s JOIN "volume" v ON v.name = s.name WHERE s.kind = 'VOLUME'
  UNION ALL
  SELECT v.id, 'IMMEDIATE'::"SuspensionMode", 'it was retired' || coalesce(': ' || v.retired_reason, '') FROM "volume" v
  WHERE v.retired_at IS NOT NULL AND NOT EXISTS (SELECT FROM "suspension" s WHERE s.kind = 'VOLUME' AND s.name = v.name);

CREATE VIEW "suspended_drive" AS
  SELECT d.id AS drive_id, s.mode, s.reason FROM "suspension" s JOIN "drive" d ON d.name = s.name WHERE s.kind = 'DRIVE';

CREATE VIEW "suspended_quota" AS
  SELECT q.id AS quota_id, s.mode, s.reason FROM "suspension" s JOIN "quota" q ON q."user" = s.name WHERE s.kind = 'USER';

CREATE VIEW "suspended_disk" AS
  SELECT k.id AS disk_id, s.mode, s.reason FROM "suspension" s JOIN "restore_disk" k ON k.mountpoint = s.name
  WHERE s.kind = 'DISK';

CREATE VIEW "suspended_library" AS
  SELECT b.id AS library_id, s.mode, s.reason FROM "suspension" s JOIN "library" b ON b.name = s.name
  WHERE s.kind = 'LIBRARY';

-- Failing disks. Engines do not use them until a retry succeeds, even if an operator also suspends them.
CREATE VIEW "failing_disk" AS
  SELECT k.id AS disk_id FROM "restore_disk" k WHERE k.retry_at IS NOT NULL;

-- Copies that are not at the paths of their files.
CREATE VIEW "renamed_place" AS
  SELECT f.id AS file_id, f.disk_path AS path FROM tape_file f WHERE f.disk_path IS NOT NULL
  UNION ALL SELECT l.file_id, l.path FROM stale_partial_file l WHERE l.path IS NOT NULL
  UNION ALL SELECT NULL, c.path FROM kept_copy c; -- in the way of its own file, too

-- Events with their public `number`. Followers read the batches themselves.
CREATE VIEW "numbered_event" AS
  SELECT b.first_number + e.id - b.first_id AS number, e.*
  FROM "event" e JOIN "event_batch" b ON b.id = e.batch_id WHERE b.last_number IS NOT NULL AND NOT b.is_pruned;

-- Signals: the payload names the table to read ------------------------------------------------------------------------

CREATE FUNCTION ring() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  PERFORM pg_notify('tapegate', TG_TABLE_NAME);
  RETURN NULL;
END;
$$;

CREATE TRIGGER event_ring AFTER INSERT ON "event" FOR EACH STATEMENT EXECUTE FUNCTION ring();
CREATE TRIGGER recall_ring AFTER INSERT ON "recall" FOR EACH STATEMENT EXECUTE FUNCTION ring();
CREATE TRIGGER notification_ring AFTER INSERT ON "notification" FOR EACH STATEMENT EXECUTE FUNCTION ring();
-- A retry of a failing disk changes no mode, and signals nothing. Nor does a statement that changes no row: engines end
-- their pauses at this signal.
CREATE TRIGGER suspension_ring AFTER INSERT OR UPDATE OF "mode" OR DELETE ON "suspension"
  FOR EACH ROW EXECUTE FUNCTION ring();

-- Ids after a failover --------------------------------------------------------------------------------------------------

CREATE FUNCTION wal_timeline() RETURNS integer LANGUAGE sql AS $$
  SELECT ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::int
$$;

-- A promoted standby may lack the last transactions, and its sequences only have the logged values. On a new timeline, all sequences
-- therefore skip more ids than can have been lost, before the first request or event. Clients know the lost ids, which are never reused.
CREATE FUNCTION skip_lost_ids() RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  present CONSTANT int := wal_timeline();
  numbers record;
BEGIN
  IF EXISTS (SELECT FROM sequence_timeline t WHERE t.timeline = present) THEN RETURN; END IF;
  PERFORM FROM sequence_timeline t FOR UPDATE;
  IF EXISTS (SELECT FROM sequence_timeline t WHERE t.timeline = present) THEN RETURN; END IF;
  FOR numbers IN
    SELECT format('%I.%I', s.schemaname, s.sequencename)::regclass AS name, coalesce(s.last_value, 0) AS last, s.max_value AS most,
      CASE WHEN s.data_type = 'bigint'::regtype THEN 1000000000 WHEN s.sequencename = 'request_id_seq' THEN 1000000 ELSE 100000 END AS skipped
    FROM pg_sequences s JOIN pg_tables t ON t.schemaname = s.schemaname AND t.tablename = 'tape_file' AND t.tableowner = s.sequenceowner
    WHERE s.schemaname = current_schema()
  LOOP
    PERFORM setval(numbers.name, numbers.last + least(numbers.skipped, (numbers.most - numbers.last) / 2));
  END LOOP;
  INSERT INTO sequence_timeline (timeline) VALUES (present) ON CONFLICT (id) DO UPDATE SET timeline = excluded.timeline;
END;
$$;

CREATE FUNCTION next_request_id() RETURNS integer LANGUAGE plpgsql AS $$
BEGIN
  PERFORM skip_lost_ids();
  RETURN nextval('request_id_seq');
END;
$$;

ALTER TABLE "request" ALTER COLUMN "id" SET DEFAULT next_request_id();

-- Numbers of events ---------------------------------------------------------------------------------------------------

CREATE FUNCTION begin_event_batch() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  PERFORM skip_lost_ids();
  PERFORM set_config('tapegate.event_batch', nextval('event_batch_id_seq')::text, true);
  RETURN NULL;
END;
$$;

CREATE TRIGGER event_batch_begin BEFORE INSERT ON "event" FOR EACH STATEMENT EXECUTE FUNCTION begin_event_batch();

CREATE FUNCTION end_event_batch() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO event_batch (id, transaction_id, first_id, last_id)
  SELECT batch_id, pg_current_xact_id()::text::bigint, min(id), max(id) FROM added GROUP BY batch_id;
  RETURN NULL;
END;
$$;

CREATE TRIGGER event_batch_end AFTER INSERT ON "event" REFERENCING NEW TABLE AS added
  FOR EACH STATEMENT EXECUTE FUNCTION end_event_batch();

-- Numbers the committed batches that have no number. Events are written last in their transactions. If two transactions affect each
-- other, the one that waited writes its events later, so ids have the order of the commits. A number is at least the id, so a client that
-- resumes after an id misses nothing.
--
-- `seen` is the result of the last call. All batches that were visible then have numbers, so only the others are searched. (While an old
-- transaction is open, the index still contains entries of batches that were numbered since.)
--
-- Returns null if another session is numbering, or if more than one step is left: call it again.
CREATE FUNCTION number_events(seen pg_snapshot) RETURNS pg_snapshot LANGUAGE plpgsql
  SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
  most CONSTANT int := 1000;
  since bigint := coalesce(pg_snapshot_xmax(seen)::text::bigint, 0);
  were_open bigint[] := ARRAY(SELECT x::text::bigint FROM pg_snapshot_xip(seen) AS x);
  present pg_snapshot;
  is_left boolean;
  next_number bigint;
  batch record;
  done int := 0;
BEGIN
  SELECT pg_current_snapshot(), EXISTS (
    SELECT FROM event_batch b WHERE b.last_number IS NULL AND (b.transaction_id >= since OR b.transaction_id = ANY(were_open))
  ) INTO present, is_left;
  IF NOT is_left THEN RETURN present; END IF;
  IF NOT pg_try_advisory_xact_lock(1413563205, 1) THEN RETURN NULL; END IF;
  SELECT coalesce(max(b.last_number), 0) + 1 INTO next_number FROM event_batch b WHERE b.last_number IS NOT NULL;
  FOR batch IN
    SELECT b.id, b.first_id, b.last_id, pg_current_snapshot() AS snapshot FROM event_batch b
    WHERE b.last_number IS NULL AND (b.transaction_id >= since OR b.transaction_id = ANY(were_open))
    ORDER BY b.last_id LIMIT most
  LOOP
    next_number := greatest(next_number, batch.first_id);
    UPDATE event_batch SET first_number = next_number, last_number = next_number + batch.last_id - batch.first_id
    WHERE id = batch.id;
    next_number := next_number + batch.last_id - batch.first_id + 1;
    present := batch.snapshot;
    done := done + 1;
  END LOOP;
  RETURN CASE WHEN done < most THEN present END;
END;
$$;

-- Rules for paths -----------------------------------------------------------------------------------------------------

CREATE FUNCTION path_ruled(path text, wanted "PathAction", who text, groups text[]) RETURNS boolean LANGUAGE sql STABLE PARALLEL SAFE AS $$
  SELECT coalesce((
    SELECT bool_or(CASE r.kind WHEN 'EVERYBODY' THEN true WHEN 'USER' THEN r.name = who ELSE r.name = ANY(groups) END)
    FROM path_rule r WHERE r.action = wanted AND r.prefix = (
      SELECT s.prefix FROM path_rule s
      WHERE s.action = wanted AND (path = s.prefix OR starts_with(path, s.prefix || '/'))
      ORDER BY length(s.prefix) DESC LIMIT 1)
  ), true)
$$;

-- A file that a caller may not list can be neither requested nor fetched.
CREATE FUNCTION path_allowed(path text, wanted "PathAction", who text, groups text[]) RETURNS boolean LANGUAGE sql STABLE PARALLEL SAFE AS $$
  SELECT path_ruled(path, 'LIST', who, groups) AND (wanted = 'LIST' OR path_ruled(path, wanted, who, groups))
$$;

-- Returns the first path from `lowest` on and before `highest`, in byte order, that the caller may list. The rules for a path change only
-- where the prefix of a rule begins or ends. From a hidden path the search continues there, so hidden files neither slow it down nor show
-- by its duration that they exist.
CREATE FUNCTION first_listed(lowest text, highest text, who text, groups text[]) RETURNS text LANGUAGE plpgsql STABLE PARALLEL SAFE AS $$
DECLARE
  edge text := lowest;
  found text;
BEGIN
  WHILE edge IS NOT NULL LOOP
    found := (SELECT f.path FROM tape_file f WHERE f.path ~>=~ edge AND f.path ~<~ highest AND (f.withdrawn_at > '-infinity') IS NOT TRUE ORDER BY f.path USING ~<~ LIMIT 1);
    IF found IS NULL OR path_ruled(found, 'LIST', who, groups) THEN
      RETURN found;
    END IF;
    -- a rule applies to its prefix and the paths below it. Nothing lies between a path and that path followed by the least character. The
    -- paths after those below a prefix begin with the character that follows a slash
    edge := (SELECT b.path
      FROM path_rule r CROSS JOIN LATERAL (VALUES (r.prefix), (r.prefix || chr(1)), (r.prefix || '/'), (r.prefix || '0')) AS b (path)
      WHERE r.action = 'LIST' AND b.path ~>~ found ORDER BY b.path USING ~<~ LIMIT 1);
  END LOOP;
  RETURN NULL;
END
$$;

-- What follows from a change of a row ---------------------------------------------------------------------------------

-- Older versions do not know these columns, and clear only the position of a copy. The other values would then be taken for those of the
-- next copy.
CREATE FUNCTION "forget_copy"() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  NEW.disk_ino := NULL;
  NEW.disk_ctime_ns := NULL;
  NEW.disk_checksum := NULL;
  RETURN NEW;
END $$;
CREATE TRIGGER "forget_copy" BEFORE UPDATE OF "disk_id" ON "tape_file"
  FOR EACH ROW WHEN (NEW."disk_id" IS NULL AND NEW."disk_ino" IS NOT NULL) EXECUTE FUNCTION "forget_copy"();

-- Without a copy there is no path of a copy. At UNVERIFIED the path is recorded after the move.
CREATE FUNCTION forget_disk_path() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  NEW.disk_path := NULL;
  NEW.folded_path := NULL;
  RETURN NEW;
END $$;
CREATE TRIGGER tape_file_disk_path BEFORE UPDATE OF "stage", "disk_id", "changed_disk_id" ON "tape_file" FOR EACH ROW
  WHEN ((NEW.disk_path IS NOT NULL OR NEW.folded_path IS NOT NULL) AND NEW.disk_id IS NULL AND NEW.changed_disk_id IS NULL AND NEW.stage NOT IN ('RESTORING', 'UNVERIFIED'))
  EXECUTE FUNCTION forget_disk_path();

-- Every change of a copy schedules a check of its link, regardless of the statement. The time is in the past for any clock.
CREATE FUNCTION mark_link() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  IF (NEW.stage = 'RESTORED' OR NEW.changed_disk_id IS NOT NULL) AND EXISTS (SELECT FROM link_root r WHERE r.path IS NOT NULL) THEN
    INSERT INTO archive_link (file_id, check_at) VALUES (NEW.id, '1970-01-01')
      ON CONFLICT (file_id) DO UPDATE SET check_at = '1970-01-01', change = archive_link.change + 1;
  ELSE
    UPDATE archive_link SET check_at = '1970-01-01', change = change + 1 WHERE file_id = NEW.id;
  END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER tape_file_link AFTER UPDATE OF "stage", "disk_id", "changed_disk_id", "path" ON "tape_file" FOR EACH ROW
  WHEN ((OLD.stage = 'RESTORED') <> (NEW.stage = 'RESTORED') OR OLD.path <> NEW.path
    OR (NEW.stage = 'RESTORED' AND OLD.disk_id IS DISTINCT FROM NEW.disk_id)
    OR OLD.changed_disk_id IS DISTINCT FROM NEW.changed_disk_id)
  EXECUTE FUNCTION mark_link();

-- A drive rejects a volume of another library. Older versions know one library. They read the error as "another drive has the volume", and
-- skip it.
CREATE FUNCTION drive_library_check() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF NOT EXISTS (SELECT FROM volume v WHERE v.id = NEW.volume_id AND v.library_id = NEW.library_id) THEN
    RAISE unique_violation USING MESSAGE = format('%s is no drive of the library of volume %s', NEW.name, NEW.volume_id);
  END IF;
  RETURN NEW;
END
$$;
CREATE TRIGGER drive_library_check BEFORE UPDATE OF volume_id ON drive FOR EACH ROW
  WHEN (NEW.volume_id IS NOT NULL AND NEW.volume_id IS DISTINCT FROM OLD.volume_id) EXECUTE FUNCTION drive_library_check();

-- Sets the user of an email, which the INSERT omits.
CREATE FUNCTION notification_user() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF NEW.quota_id IS NULL THEN
    SELECT r.quota_id INTO NEW.quota_id FROM request r WHERE r.id = NEW.request_id;
  END IF;
  RETURN NEW;
END;
$$;
CREATE TRIGGER notification_user BEFORE INSERT ON "notification" FOR EACH ROW EXECUTE FUNCTION notification_user();

-- The audit is append-only --------------------------------------------------------------------------------------------

-- Only prune_audit deletes rows. Only purge_in_audit changes them, in the columns that may contain personal data.
CREATE FUNCTION "audit_guard"() RETURNS TRIGGER LANGUAGE plpgsql AS $$
DECLARE
  callers TEXT;
BEGIN
  GET DIAGNOSTICS callers = PG_CONTEXT;
  IF TG_OP = 'DELETE' AND callers ~ '\mprune_audit\(timestamp' THEN RETURN OLD; END IF;
  IF TG_OP = 'UPDATE' AND callers ~ '\mpurge_in_audit\(text,text' THEN
    IF (OLD.id, OLD.at, OLD.way, OLD.token_id, OLD.operation, OLD.kind, OLD.result, OLD.count)
      IS NOT DISTINCT FROM (NEW.id, NEW.at, NEW.way, NEW.token_id, NEW.operation, NEW.kind, NEW.result, NEW.count) THEN RETURN NEW; END IF;
  END IF;
  RAISE EXCEPTION 'audit is append-only: % is refused', TG_OP USING ERRCODE = 'restrict_violation';
END $$;
CREATE TRIGGER "audit_guard_rows" BEFORE UPDATE OR DELETE ON "audit" FOR EACH ROW EXECUTE FUNCTION audit_guard();
CREATE TRIGGER "audit_guard_table" BEFORE TRUNCATE ON "audit" FOR EACH STATEMENT EXECUTE FUNCTION audit_guard();

-- Deletes the oldest rows before a time, at most `step`.
CREATE FUNCTION "prune_audit"(before TIMESTAMP, step INTEGER) RETURNS INTEGER LANGUAGE plpgsql AS $$
DECLARE
  pruned INTEGER;
BEGIN
  DELETE FROM audit WHERE id = ANY(ARRAY(
    SELECT a.id FROM audit a WHERE a.at < before ORDER BY a.at, a.id LIMIT step FOR UPDATE SKIP LOCKED));
  GET DIAGNOSTICS pruned = ROW_COUNT;
  RETURN pruned;
END $$;

-- Returns the value with the pseudonym in place of each string that is the name, alone or after its type ("service:name"), and in place of
-- the address within a string. In rows of the user (`is_own`), free texts, addresses and truncated input are replaced as a whole.
CREATE FUNCTION "purge_in_json"(value JSONB, name TEXT, address TEXT, pseudonym TEXT, is_own BOOLEAN) RETURNS JSONB LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
  found TEXT;
BEGIN
  CASE jsonb_typeof(value)
    WHEN 'object' THEN
      RETURN coalesce((SELECT jsonb_object_agg(e.key, CASE
        WHEN is_own AND e.key IN ('label', 'note', 'notes', 'reason', 'email', 'notifyOnFirstFile', 'notifyOnLastFile', 'cut')
          AND e.value NOT IN ('""', 'null') THEN CASE
            WHEN e.value #>> '{}' ~ '^purged-[0-9a-f]{8}$' THEN e.value -- of a time before, which ended halfway
            ELSE to_jsonb(pseudonym) END
        ELSE purge_in_json(e.value, name, address, pseudonym, is_own) END) FROM jsonb_each(value) e), '{}');
    WHEN 'array' THEN
      RETURN coalesce((SELECT jsonb_agg(purge_in_json(e.value, name, address, pseudonym, is_own) ORDER BY e.ordinality)
        FROM jsonb_array_elements(value) WITH ORDINALITY e), '[]');
    WHEN 'string' THEN
      found := value #>> '{}';
      IF found = name THEN RETURN to_jsonb(pseudonym); END IF;
      IF found IN ('user:' || name, 'service:' || name, 'operator:' || name) THEN RETURN to_jsonb(split_part(found, ':', 1) || ':' || pseudonym); END IF;
      RETURN to_jsonb(coalesce(replace(found, address, pseudonym), found));
    ELSE RETURN value;
  END CASE;
END $$;

-- Replaces a user's name and address by a pseudonym in rows `first` to `last`. A large audit log is processed in steps, and only rows that
-- change are written. The name is searched as a whole JSON string, alone or after its type ("service:name"), and the address within
-- strings. Rows of the user, of its quota and of its requests are its own.
CREATE FUNCTION "purge_in_audit"(name TEXT, address TEXT, pseudonym TEXT, requests TEXT[], first BIGINT, last BIGINT)
RETURNS INTEGER LANGUAGE plpgsql AS $$
DECLARE
  whole TEXT := to_jsonb(name)::text;
  ending TEXT := ':' || substr(to_jsonb(name)::text, 2);
  part TEXT := substr(to_jsonb(address)::text, 2, length(to_jsonb(address)::text) - 2);
  changed INTEGER;
BEGIN
  UPDATE audit a SET
    who = CASE WHEN a.who = name THEN pseudonym ELSE a.who END,
    address = CASE WHEN a.who = name THEN NULL ELSE a.address END,
    object = CASE WHEN a.object = name AND a.kind IN ('QUOTA', 'USER') THEN pseudonym ELSE a.object END,
    given = n.given
  FROM (
    SELECT o.id, purge_in_json(o.given, name, purge_in_audit.address, pseudonym, m.is_own) AS given
    FROM audit o CROSS JOIN LATERAL (
      SELECT o.who = name OR (o.object = name AND o.kind IN ('QUOTA', 'USER'))
        OR (o.kind = 'REQUEST' AND o.object IN (SELECT unnest(requests)))
        OR (strpos(o.given::text, whole) > 0 AND jsonb_path_exists(o.given, '$.** ? (@ == $name)', jsonb_build_object('name', name))) AS is_own
      OFFSET 0
    ) m
    WHERE o.id BETWEEN first AND last
      AND (m.is_own OR strpos(o.given::text, ending) > 0 OR coalesce(strpos(o.given::text, part) > 0, false))
    OFFSET 0
  ) n
  WHERE n.id = a.id AND (a.who = name OR (a.object = name AND a.kind IN ('QUOTA', 'USER')) OR a.given <> n.given);
  GET DIAGNOSTICS changed = ROW_COUNT;
  RETURN changed;
END $$;

-- Rows ----------------------------------------------------------------------------------------------------------------

INSERT INTO "site_identity" ("identity", "database") VALUES (gen_random_uuid(), gen_random_uuid());
INSERT INTO "library" ("name", "kind", "contract", "added_at") VALUES ('directory', 'directory', 'DRIVE', timezone('utc', clock_timestamp()));
INSERT INTO "sequence_timeline" ("timeline") VALUES (wal_timeline());
