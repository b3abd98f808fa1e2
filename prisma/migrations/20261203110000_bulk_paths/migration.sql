-- Files that are let go without the id of what they were staged under are looked up by the path by which that was done: theirs may be another one by now.
CREATE INDEX "bulk_file_path_idx" ON "bulk_file"("path");
