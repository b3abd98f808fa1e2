#!/usr/bin/env python3
"""IBM Spectrum Protect for Space Management as a staging library: spectrum-protect.py stage|poll|fetch|release -- ...

Untested. From the manual's pages on dsmrecall, dsmls and dsmmigrate. TAPE_ROOT, the file system, is the prefix of each catalogue path.
dsmrecall orders a list of files by tape. It runs in the background and logs to TAPE_LOG.
"""
import json
import os
import re
import subprocess
import sys
import tempfile

ROOT = os.environ.get("TAPE_ROOT", "/")
LOG = os.environ.get("TAPE_LOG", "/dev/null")
LINE = re.compile(r"^\s*\d+\s+\d+\s+\d+\s+([rpm]) +\S", re.M)  # sizes, blocks, state, name
verb, arguments = sys.argv[1], sys.argv[3:]  # argv[2] is --


def end(code, message):
    print(message, file=sys.stderr)
    sys.exit(code)


def states(names_on_disk):
    """Returns the state of each file: r (resident), p (on disk and on tape) or m (migrated)."""
    if not names_on_disk:
        return []
    done = subprocess.run(["dsmls", *names_on_disk], capture_output=True, text=True)
    found = LINE.findall(done.stdout)
    if len(found) != len(names_on_disk):
        end(105, done.stderr.strip() or f"dsmls returned {len(found)} states for {len(names_on_disk)} files")
    return found


def with_list(command, names_on_disk):
    """Runs a command in the background in a new session, because processes in the group of a script end with the script."""
    with tempfile.NamedTemporaryFile("w", prefix="tapegate-", suffix=".list", delete=False) as names:
        names.write("".join(name_on_disk + "\n" for name_on_disk in names_on_disk))
    with open(LOG, "a") as log:
        script = [*command, f"-filelist={names.name}", ROOT]
        run_and_remove = ["sh", "-c", 'list=$1; shift; "$@"; rm -f -- "$list"', "sh", names.name, *script]
        subprocess.Popen(run_and_remove, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)


def report(path, state, **more):
    print(json.dumps({"path": path, "state": state, **more}))


if verb == "fetch":
    name_on_disk, offset = ROOT + arguments[0], int(arguments[1])
    if not os.path.isfile(name_on_disk):
        end(101, f"there is no {name_on_disk}")
    if states([name_on_disk]) == ["m"]:
        end(107, f"{name_on_disk} is migrated")  # opening the file would recall it, in no useful order
    os.execvp("tail", ["tail", "-c", f"+{offset + 1}", "--", name_on_disk])

paths = [json.loads(line)["path"] for line in sys.stdin]
there = [path for path in paths if os.path.isfile(ROOT + path) and "\n" not in path]
found = dict(zip(there, states([ROOT + path for path in there])))
if verb == "release":
    with_list(["dsmmigrate"], [ROOT + path for path in there if found[path] == "p"])
else:
    for path in set(paths) - set(there):
        report(path, "failed", **{"class": "PERMANENT"}, message=f"there is no {ROOT + path}")
    for path in there:
        report(path, "waiting" if found[path] == "m" else "ready")
    if verb == "stage":
        with_list(["dsmrecall", "-detail"], [ROOT + path for path in there if found[path] == "m"])
