-- Ended requests are kept in a compact form: what they held, and the paths that they waited for, in bundles. Whatever counts by its
-- files, a recall that ends for instance, looks at rows of `hold` only, and does not meet them any more.

-- CreateEnum
CREATE TYPE "RequestForm" AS ENUM ('ROWS', 'MIXED', 'COMPACT');

-- AlterTable
ALTER TABLE "request" ADD COLUMN "form" "RequestForm" NOT NULL DEFAULT 'ROWS';

-- CreateTable
CREATE TABLE "hold_bundle" (
    "request_id" INTEGER NOT NULL,
    "first_ordinal" INTEGER NOT NULL,
    "last_ordinal" INTEGER NOT NULL,
    "file_ids" BIGINT[],
    "ordinals" INTEGER[],
    "sizes" BIGINT[],
    "states" "HoldState"[],
    "error_classes" "ErrorClass"[],
    "errors" TEXT[],

    CONSTRAINT "hold_bundle_pkey" PRIMARY KEY ("request_id","last_ordinal")
);

-- CreateTable
CREATE TABLE "path_bundle" (
    "request_id" INTEGER NOT NULL,
    "first_ordinal" INTEGER NOT NULL,
    "last_ordinal" INTEGER NOT NULL,
    "paths" TEXT[],
    "ordinals" INTEGER[],
    "reasons" "AwaitedReason"[],

    CONSTRAINT "path_bundle_pkey" PRIMARY KEY ("request_id","last_ordinal")
);

-- AddForeignKey
ALTER TABLE "hold_bundle" ADD CONSTRAINT "hold_bundle_request_id_fkey" FOREIGN KEY ("request_id") REFERENCES "request"("id") ON DELETE RESTRICT ON UPDATE CASCADE;

-- AddForeignKey
ALTER TABLE "path_bundle" ADD CONSTRAINT "path_bundle_request_id_fkey" FOREIGN KEY ("request_id") REFERENCES "request"("id") ON DELETE RESTRICT ON UPDATE CASCADE;

-- What the models cannot say.

-- Only what has ended is compact: a program that knows nothing of bundles cannot revive a request without its files.
ALTER TABLE "request" ADD CONSTRAINT "request_form_check" CHECK ("form" = 'ROWS' OR "state" IN ('EXPIRED', 'CANCELLED'));

-- A hold that is lost from one array, and not from the others, would give others its state.
ALTER TABLE "hold_bundle" ADD CONSTRAINT "hold_bundle_check" CHECK (
  "first_ordinal" <= "last_ordinal" AND cardinality("file_ids") = cardinality("ordinals")
    AND cardinality("sizes") = cardinality("ordinals") AND cardinality("states") = cardinality("ordinals")
    AND coalesce(cardinality("error_classes") = cardinality("ordinals"), true)
    AND coalesce(cardinality("errors") = cardinality("ordinals"), true));
ALTER TABLE "path_bundle" ADD CONSTRAINT "path_bundle_check" CHECK (
  "first_ordinal" <= "last_ordinal" AND cardinality("paths") = cardinality("ordinals")
    AND cardinality("reasons") = cardinality("ordinals"));

-- Ended requests that are still to become compact, and letters whose text they are to lose.
CREATE INDEX "request_to_compact_idx" ON "request" ("retention", "id") WHERE "state" IN ('EXPIRED', 'CANCELLED') AND "form" <> 'COMPACT';
CREATE INDEX "notification_told_idx" ON "notification" ("request_id") WHERE "state" <> 'PENDING' AND "body" <> '';

-- All holds and awaited paths, in rows and in bundles, for whoever reads those of some requests. A condition on the request is one of
-- both tables; `first_ordinal` and `last_ordinal` spare the bundles that are not asked for.
CREATE VIEW "any_hold" AS
  SELECT h.request_id, h.file_id, h.ordinal, h.size, h.state, h.error_class, h.error,
    h.ordinal AS first_ordinal, h.ordinal AS last_ordinal
  FROM "hold" h
  UNION ALL
  SELECT b.request_id, u.file_id, u.ordinal, u.size, u.state, u.error_class, u.error, b.first_ordinal, b.last_ordinal
  FROM "hold_bundle" b CROSS JOIN LATERAL unnest(b.file_ids, b.ordinals, b.sizes, b.states, b.error_classes, b.errors)
    AS u (file_id, ordinal, size, state, error_class, error);

CREATE VIEW "any_awaited_path" AS
  SELECT a.request_id, a.path, a.ordinal, a.reason, a.ordinal AS first_ordinal, a.ordinal AS last_ordinal FROM "awaited_path" a
  UNION ALL
  SELECT b.request_id, u.path, u.ordinal, u.reason, b.first_ordinal, b.last_ordinal
  FROM "path_bundle" b CROSS JOIN LATERAL unnest(b.paths, b.ordinals, b.reasons) AS u (path, ordinal, reason);
