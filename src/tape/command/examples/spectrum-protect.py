#!/usr/bin/env python3
"""IBM Spectrum Protect for Space Management as a staging library: spectrum-protect.py stage|poll|fetch|release -- ...

Untested. From the manual's pages on dsmrecall, dsmls and dsmmigrate. TAPE_ROOT, the file system, is put before each path of the catalogue.
A recall of a list is ordered by tape, and takes as long as it takes: it goes on in the background, and logs to TAPE_LOG.
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
verb, arguments = sys.argv[1], sys.argv[3:]  # between them is --


def end(code, message):
    print(message, file=sys.stderr)
    sys.exit(code)


def states(places):
    """r: resident, p: on disk and on tape, m: migrated."""
    if not places:
        return []
    done = subprocess.run(["dsmls", *places], capture_output=True, text=True)
    found = LINE.findall(done.stdout)
    if len(found) != len(places):
        end(105, done.stderr.strip() or f"dsmls told {len(found)} states of {len(places)} files")
    return found


def with_list(command, places):
    """In the background, in a session of its own: what stays in the group of a script ends with it."""
    with tempfile.NamedTemporaryFile("w", prefix="tapegate-", suffix=".list", delete=False) as names:
        names.write("".join(place + "\n" for place in places))
    with open(LOG, "a") as log:
        script = [*command, f"-filelist={names.name}", ROOT]
        run_and_remove = ["sh", "-c", 'list=$1; shift; "$@"; rm -f -- "$list"', "sh", names.name, *script]
        subprocess.Popen(run_and_remove, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)


def say(path, state, **more):
    print(json.dumps({"path": path, "state": state, **more}))


if verb == "fetch":
    place, offset = ROOT + arguments[0], int(arguments[1])
    if not os.path.isfile(place):
        end(101, f"there is no {place}")
    if states([place]) == ["m"]:
        end(107, f"{place} is migrated")  # to open it would recall it, outside of any order
    os.execvp("tail", ["tail", "-c", f"+{offset + 1}", "--", place])

paths = [json.loads(line)["path"] for line in sys.stdin]
there = [path for path in paths if os.path.isfile(ROOT + path) and "\n" not in path]
found = dict(zip(there, states([ROOT + path for path in there])))
if verb == "release":
    with_list(["dsmmigrate"], [ROOT + path for path in there if found[path] == "p"])
else:
    for path in set(paths) - set(there):
        say(path, "failed", **{"class": "PERMANENT"}, message=f"there is no {ROOT + path}")
    for path in there:
        say(path, "waiting" if found[path] == "m" else "ready")
    if verb == "stage":
        with_list(["dsmrecall", "-detail"], [ROOT + path for path in there if found[path] == "m"])
