CREATE TYPE "PathAction" AS ENUM ('LIST', 'REQUEST', 'FETCH');
CREATE TYPE "RuleKind" AS ENUM ('EVERYBODY', 'USER', 'GROUP');

-- Who may do what with the files below a folder. Of the folders above a file, the longest that has rules for an action decides;
-- where none has, everybody may.
CREATE TABLE "path_rule" (
    "id" SERIAL NOT NULL,
    "prefix" TEXT NOT NULL,
    "action" "PathAction" NOT NULL,
    "kind" "RuleKind" NOT NULL,
    "name" TEXT NOT NULL DEFAULT '',

    CONSTRAINT "path_rule_pkey" PRIMARY KEY ("id")
);
CREATE UNIQUE INDEX "path_rule_prefix_action_kind_name_key" ON "path_rule"("prefix", "action", "kind", "name");

-- Who has made a request, or let it take more since, and the groups of that caller: rules hold by them for what joins it later; where
-- the groups are null no rule does.
ALTER TABLE "request" ADD COLUMN "ruled_by" TEXT;
ALTER TABLE "request" ADD COLUMN "ruled_groups" TEXT[];

CREATE FUNCTION path_ruled(path text, wanted "PathAction", who text, groups text[]) RETURNS boolean LANGUAGE sql STABLE AS $$
  SELECT coalesce((
    SELECT bool_or(CASE r.kind WHEN 'EVERYBODY' THEN true WHEN 'USER' THEN r.name = who ELSE r.name = ANY(groups) END)
    FROM path_rule r WHERE r.action = wanted AND r.prefix = (
      SELECT s.prefix FROM path_rule s
      WHERE s.action = wanted AND (path = s.prefix OR starts_with(path, s.prefix || '/'))
      ORDER BY length(s.prefix) DESC LIMIT 1)
  ), true)
$$;

-- What nobody may see, nobody may have.
CREATE FUNCTION path_allowed(path text, wanted "PathAction", who text, groups text[]) RETURNS boolean LANGUAGE sql STABLE AS $$
  SELECT path_ruled(path, 'LIST', who, groups) AND (wanted = 'LIST' OR path_ruled(path, wanted, who, groups))
$$;
