-- They read and do nothing else: a search that looks at each path is shared among the server's cores, whoever asks.
ALTER FUNCTION path_ruled(text, "PathAction", text, text[]) PARALLEL SAFE;
ALTER FUNCTION path_allowed(text, "PathAction", text, text[]) PARALLEL SAFE;
