#!/usr/bin/env python3
"""DMF as a staging library: dmf.py stage|poll|fetch|release -- ...

Untested. From the manual pages dmget(1), dmattr(1) and dmput(1). TAPE_ROOT is the prefix of each catalogue path.
"""
import json
import os
import subprocess
import sys

ROOT = os.environ.get("TAPE_ROOT", "")
verb, arguments = sys.argv[1], sys.argv[3:]  # argv[2] is --


def end(code, message):
    print(message, file=sys.stderr)
    sys.exit(code)


def run(*command, names=()):
    """Runs a command with names on standard input, one per line. Returns its output."""
    try:
        text = "".join(name + "\n" for name in names)
        done = subprocess.run(command, input=text, capture_output=True, text=True)
    except OSError as error:
        end(105, f"{command[0]}: {error}")
    if done.returncode != 0:
        end(105, done.stderr.strip() or f"{command[0]} ended with {done.returncode}")
    return done.stdout


def report(path, state, **more):
    print(json.dumps({"path": path, "state": state, **more}))


if verb == "fetch":
    name_on_disk, offset = ROOT + arguments[0], int(arguments[1])
    if not os.path.isfile(name_on_disk):
        end(101, f"there is no {name_on_disk}")
    if run("dmattr", "-a", "state", name_on_disk).strip() not in ("DUL", "REG", "MIG"):
        end(107, f"{name_on_disk} is on tape")  # opening the file would recall it, in no useful order
    os.execvp("tail", ["tail", "-c", f"+{offset + 1}", "--", name_on_disk])

paths = [json.loads(line)["path"] for line in sys.stdin]
there = [path for path in paths if os.path.isfile(ROOT + path) and "\n" not in path]
if verb == "stage":
    for path in paths:
        if path not in there:
            report(path, "failed", **{"class": "PERMANENT"}, message=f"there is no {ROOT + path}")
    run("dmget", "-q", names=[ROOT + path for path in there])  # returns when the daemon has queued the files
elif verb == "release":
    run("dmput", "-r", names=[ROOT + path for path in there])
else:
    states = run("dmattr", "-a", "state", *[ROOT + path for path in there]).split() if there else []
    if len(states) != len(there):
        end(105, f"dmattr returned {len(states)} states for {len(there)} files")
    for path, state in zip(there, states):
        # an offline file is not being recalled: the daemon lost its queue when it ended
        word = {"DUL": "ready", "REG": "ready", "MIG": "ready", "OFL": "forgotten"}.get(state, "waiting")
        report(path, word)
    for path in set(paths) - set(there):
        report(path, "failed", **{"class": "PERMANENT"}, message=f"there is no {ROOT + path}")
