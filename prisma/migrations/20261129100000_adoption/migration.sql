-- What was taken over of a system before this one, as it was there then.
CREATE TABLE "adopted" (
  "kind" TEXT NOT NULL,
  "id" BIGINT NOT NULL,
  "digest" TEXT NOT NULL,
  "place" TEXT,
  "at" TIMESTAMP(6) NOT NULL,
  CONSTRAINT "adopted_pkey" PRIMARY KEY ("kind", "id")
);
