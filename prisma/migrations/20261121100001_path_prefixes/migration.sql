-- Whether anything lies below a path is asked byte by byte: the order of the database's collation passes over slashes.
CREATE INDEX "tape_file_path_prefix_idx" ON "tape_file" ("path" text_pattern_ops);
