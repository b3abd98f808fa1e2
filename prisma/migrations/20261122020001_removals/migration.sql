-- Who removes a copy says so here for a while, instead of holding the row of its file.
CREATE TABLE "removal" (
    "file_id" BIGINT NOT NULL,
    "claimed_until" TIMESTAMP(6) NOT NULL,

    CONSTRAINT "removal_pkey" PRIMARY KEY ("file_id")
);
