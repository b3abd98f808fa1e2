-- One-time links with which a browser downloads several restored files as one archive
CREATE TABLE "download_link" (
    "hash" BYTEA NOT NULL,
    "owner" TEXT NOT NULL,
    "caller" JSONB NOT NULL,
    "request_id" INTEGER NOT NULL,
    "file_ids" BIGINT[],
    "expires_at" TIMESTAMP(6) NOT NULL,

    CONSTRAINT "download_link_pkey" PRIMARY KEY ("hash")
);
CREATE INDEX "download_link_owner_expires_at_idx" ON "download_link"("owner", "expires_at");
CREATE INDEX "download_link_expires_at_idx" ON "download_link"("expires_at");
