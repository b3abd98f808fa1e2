-- What engines saw when they last looked at a restore disk, by their hosts: the gateway touches no disk. No foreign key: its checks would
-- wait for recalls that reserve room, and `restore_disk` changes for its room alone.
CREATE TABLE "disk_measurement" (
    "disk_id" INTEGER NOT NULL,
    "host" TEXT NOT NULL,
    "free" BIGINT,
    "problem" TEXT,
    "measured_at" TIMESTAMP(6) NOT NULL,

    CONSTRAINT "disk_measurement_pkey" PRIMARY KEY ("disk_id", "host")
);
