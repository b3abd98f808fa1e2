#!/usr/bin/env python3
"""DMF as a staging library: dmf.py stage|poll|fetch|release -- ...

Untested. From the manual pages dmget(1), dmattr(1) and dmput(1). TAPE_ROOT is put before each path of the catalogue.
"""
import json
import os
import subprocess
import sys

ROOT = os.environ.get("TAPE_ROOT", "")
verb, arguments = sys.argv[1], sys.argv[3:]  # between them is --


def end(code, message):
    print(message, file=sys.stderr)
    sys.exit(code)


def run(*command, names=()):
    """What a command says. It is told names on standard input, one a line."""
    try:
        text = "".join(name + "\n" for name in names)
        done = subprocess.run(command, input=text, capture_output=True, text=True)
    except OSError as error:
        end(105, f"{command[0]}: {error}")
    if done.returncode != 0:
        end(105, done.stderr.strip() or f"{command[0]} ended with {done.returncode}")
    return done.stdout


def say(path, state, **more):
    print(json.dumps({"path": path, "state": state, **more}))


if verb == "fetch":
    place, offset = ROOT + arguments[0], int(arguments[1])
    if not os.path.isfile(place):
        end(101, f"there is no {place}")
    if run("dmattr", "-a", "state", place).strip() not in ("DUL", "REG", "MIG"):
        end(107, f"{place} is on tape")  # to open it would recall it, outside of any order
    os.execvp("tail", ["tail", "-c", f"+{offset + 1}", "--", place])

paths = [json.loads(line)["path"] for line in sys.stdin]
there = [path for path in paths if os.path.isfile(ROOT + path) and "\n" not in path]
if verb == "stage":
    for path in paths:
        if path not in there:
            say(path, "failed", **{"class": "PERMANENT"}, message=f"there is no {ROOT + path}")
    run("dmget", "-q", names=[ROOT + path for path in there])  # returns when the daemon has noted them
elif verb == "release":
    run("dmput", "-r", names=[ROOT + path for path in there])
else:
    states = run("dmattr", "-a", "state", *[ROOT + path for path in there]).split() if there else []
    if len(states) != len(there):
        end(105, f"dmattr told {len(states)} states of {len(there)} files")
    for path, state in zip(there, states):
        # one that is still offline is not being recalled: the daemon forgets what it was asked for when it ends
        word = {"DUL": "ready", "REG": "ready", "MIG": "ready", "OFL": "forgotten"}.get(state, "waiting")
        say(path, word)
    for path in set(paths) - set(there):
        say(path, "failed", **{"class": "PERMANENT"}, message=f"there is no {ROOT + path}")
