-- Sums of measured read and mount times of each drive, from which src/planner/pace.ts learns the drive's speed
ALTER TABLE "drive" ADD COLUMN "pace" DOUBLE PRECISION[] NOT NULL DEFAULT '{}';
