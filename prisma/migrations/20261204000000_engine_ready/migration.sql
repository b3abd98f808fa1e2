-- Until when an engine is ready to start processes for a library's drives; NULL in the rows of those processes
ALTER TABLE "engine_process" ADD COLUMN "ready_until" TIMESTAMP(6);
