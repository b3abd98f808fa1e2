#!/usr/bin/env python3
"""A client of Tapegate in one file, for Python 3.7 and newer, without dependencies: import it, or run it.

    from tapegate import Tapegate

    tapes = Tapegate("https://tapes.example.org")      # or TAPEGATE_URL
    request = tapes.create_request("alice", pattern="/ocean/2024/")
    for step in tapes.follow(request["requestId"]):
        print(step["state"], step["filesOnDisk"], "of", step["filesTotal"])
    for path in tapes.restored_paths(request["requestId"]):
        print(path)

It asks by GraphQL; `query` takes any document. Sizes are whole numbers of bytes, times are texts of RFC 3339 in UTC. What is refused is raised as
`Refused`, with the code of the schema (`code`) and all that it says (`failure`); where the gateway cannot be reached, `OSError`.

The token is that of `token=`, of TAPEGATE_TOKEN, or what `tapegate login` has kept for the gateway. `python3 tapegate.py --help` has the commands.
"""

import argparse
import collections.abc
import datetime
import http.client
import ipaddress
import itertools
import json
import os
import pathlib
import re
import socket
import ssl
import struct
import sys
import time
import urllib.error
import urllib.parse
import urllib.request

__all__ = ["NotOnDisk", "Refused", "Tapegate"]

#: Fields of the schema that are BigInt: sent as texts, since numbers of JSON are not exact everywhere.
INTEGERS = {
    "available", "bytes", "bytesAlsoRequested", "bytesAtPrimaryPlace", "bytesOnDisk", "bytesRestored", "bytesRunning",
    "bytesToRecall", "bytesTotal", "bytesWaiting", "copyPosition", "depthBytes", "eventId", "free", "stagedBytes", "maxBytes",
    "position", "quotaSize", "quotaUsed", "quotaUsedAfter", "refused", "requested", "reserved", "sent",
    "size", "used", "uses",
}

#: Seconds: an answer may take so long, and on a stream something comes every 12.
ANSWER_SECONDS = 120
SILENCE_SECONDS = 40

LONGEST_PAUSE_SECONDS = 30

#: What all archive paths hold: each begins with it.
EVERY_PATH = "/"

#: Exit codes, as those of the command line.
FAILED, USAGE, INCOMPLETE = 1, 2, 3

#: Of files that have failed, and paths that are missing, so many are named.
NAMED = 3

#: What would move the cursor of a terminal, begin another line, or turn the direction of writing.
UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]")

REQUEST = """requestId label pattern state requestDate retention filesTotal filesOnDisk filesFailed filesUnknown
  filesRefused filesOverLimit filesReleased bytesTotal bytesOnDisk restoredBelow quota { user }"""

FAILURE = "__typename ... on Failure { code message }"

#: Of what may be charged.
CHARGED = REQUEST + """ } ... on InvalidInput { field } ... on QuotaExceeded { requested available size used } %s""" % FAILURE


class Refused(Exception):
    """What the gateway says no to, or cannot do."""

    def __init__(self, message, code=None, failure=None):
        super().__init__(message)
        #: Such as NOT_FOUND, FORBIDDEN or QUOTA_EXCEEDED.
        self.code = code
        #: All fields of the failure.
        self.failure = failure or {}


class NotOnDisk(Exception):
    """Files of a request were on disk, and are there no longer, such as copies that were removed outside Tapegate, or their disk fails."""

    def __init__(self, message, paths):
        super().__init__(message)
        #: Their logical paths.
        self.paths = paths


class _Stay(urllib.request.HTTPRedirectHandler):
    """Follows nobody who leads elsewhere: the token would be shown there."""

    def redirect_request(self, req, fp, code, msg, headers, newurl):
        return None


class Tapegate:
    """One gateway, as one caller. An object of it may be used by several threads."""

    def __init__(self, url=None, token=None, ca_file=None):
        """`ca_file`: certificates of authorities beside which the system's are not asked. Raises ValueError for what is no URL of a gateway."""
        self.url = _checked_url(url or os.environ.get("TAPEGATE_URL") or "http://127.0.0.1:8080")
        self.token = token or os.environ.get("TAPEGATE_TOKEN") or _kept_token(self.url)
        tls = [urllib.request.HTTPSHandler(context=ssl.create_default_context(cafile=ca_file))] if self.url.startswith("https:") else []
        self._http = urllib.request.build_opener(_Stay, *tls)

    # requests

    def create_request(self, quota, files=None, pattern=None, **options):
        """Asks for files by their paths, or for all whose path contains a text.

        files: any iterable of texts or path objects; a single text is one path.
        options: label, retention, maxFiles, maxBytes, notifyOnFirstFile, notifyOnLastFile. A retention is a datetime, a date or a text
        of RFC 3339. A datetime without a zone is UTC (so pass datetime.now(timezone.utc), not now()); a date is its midnight in UTC.
        It is not repeated where no answer comes: the request may have been made.
        """
        chosen = {"quota": quota, "files": files, "pattern": pattern}
        return self._change("createRequest(input: $input) { ... on Request { %s }" % CHARGED,
                            "$input: CreateRequestInput!", input=_given({**chosen, **options}))

    def estimate(self, quota, files=None, pattern=None):
        """What that would take, and when it may be done; nothing is asked for."""
        chosen = _given({"quota": quota, "files": files, "pattern": pattern})
        document = """query ($input: CreateRequestInput!) { estimateRequest(input: $input) { ... on Estimate {
          files bytes filesOnDisk bytesOnDisk filesAlsoRequested bytesAlsoRequested filesToRecall bytesToRecall filesUnknown unknownPaths volumes mounts
          quotaSize quotaUsed quotaUsedAfter isEnough hasRoom endUnknown end { earliest planned latest }
          price { amount currency } } %s } }""" % FAILURE
        return _unless_refused(self.query(document, input=chosen)["estimateRequest"])

    def request(self, request_id):
        """None where there is no such request that the caller may see."""
        return self.query("query ($id: Int!) { request(id: $id) { %s waiting { place endUnknown end { planned } } } }" % REQUEST,
                          id=request_id)["request"]

    def requests(self, quota=None, states=None):
        """All that the caller may see, the oldest first, page by page."""
        document = """query ($quota: String, $states: [RequestState!], $after: String) {
          page: requests(quota: $quota, states: $states, first: 100, after: $after) {
            pageInfo { hasNextPage endCursor } edges { node { %s } } } }""" % REQUEST
        return self._pages(document, lambda data: data["page"], quota=quota, states=states)

    def update(self, request_id, **changes):
        """changes: as the options of `create_request`, and quota."""
        return self._change("updateRequest(input: $input) { ... on Request { %s }" % CHARGED,
                            "$input: UpdateRequestInput!", input={"id": request_id, **changes})

    def retry(self, request_id):
        """Tries again what has failed."""
        return self._change("retryRequest(input: $input) { ... on Request { %s } %s }" % (REQUEST, FAILURE),
                            "$input: RetryRequestInput!", input={"id": request_id})

    def release(self, request_id, match=None, paths=None):
        """Lets files go before the request ends: those whose path contains a text, or these; all of them unless either is given."""
        if match is None and paths is None:
            match = EVERY_PATH
        return self._change("releaseFiles(input: $input) { ... on Request { %s } %s }" % (REQUEST, FAILURE),
                            "$input: ReleaseFilesInput!", input=_given({"id": request_id, "match": match, "paths": paths}))

    def cancel(self, request_id):
        """Ends it now; its files leave the disk."""
        return self._change("cancelRequest(id: $id) { ... on Request { %s } %s }" % (REQUEST, FAILURE),
                            "$id: Int!", id=request_id)

    def request_files(self, request_id, states=None):
        """The files of a request, with how it goes with each: state, error, file { path size restoredPath }."""
        document = """query ($id: Int!, $states: [RequestFileState!], $after: String) { request(id: $id) {
          files(first: 500, after: $after, states: $states) { pageInfo { hasNextPage endCursor }
            edges { node { state size error lastError nextTry
              file { path size stage restoredPath isAtPrimaryPlace checksum adler32 disk { mountpoint suspension { nextTry reason } } } } } } } }"""

        def page_of(data):
            if data["request"] is None:
                raise Refused("there is no request %s" % request_id, "NOT_FOUND")
            return data["request"]["files"]

        return self._pages(document, page_of, id=request_id, states=states)

    def restored_paths(self, request_id):
        """Yields the paths of a request's files that are on disk now. Raises NotOnDisk at the end, for others, also those on a disk that fails."""
        lost, reasons = [], collections.Counter()
        for item in self.request_files(request_id, states=["ON_DISK"]):
            path = _path_on_disk(item["file"])
            if path is None:
                lost.append(item["file"]["path"])
                reasons[_why_lost(item["file"]["disk"])] += 1
            else:
                yield path
        if lost:
            lines = ["%s of request %d %s %s" % (_plural(count, "file"), request_id, "is" if count == 1 else "are", why)
                     for why, count in reasons.items()]
            raise NotOnDisk("\n".join(lines), lost)

    def follow(self, request_id):
        """Each step of a request until nothing is left to do, whatever breaks off meanwhile: nothing is missed or told twice."""
        document = """subscription ($id: Int!, $after: BigInt) { requestProgress(id: $id, after: $after) {
          eventId state filesTotal filesOnDisk filesFailed bytesTotal bytesOnDisk eta at } }"""
        after, tries = None, 0
        while True:
            try:
                for data in self.subscribe(document, id=request_id, after=after):
                    step = data["requestProgress"]
                    after, tries = str(step["eventId"]), 0
                    yield step
                return
            except (OSError, http.client.HTTPException):
                pass  # a gateway that is restarted is back in a moment
            time.sleep(min(LONGEST_PAUSE_SECONDS, 2 ** tries))
            tries += 1

    # what there is

    def files(self, match=None, stages=None):
        """Files of the catalogue whose path contains a text, in the order of their paths."""
        document = """query ($match: String, $stages: [Stage!], $after: String) {
          page: tapeFiles(match: $match, stages: $stages, first: 500, after: $after, count: ESTIMATED) {
            pageInfo { hasNextPage endCursor } edges { node { path size stage restoredPath checksum adler32 } } } }"""
        return self._pages(document, lambda data: data["page"], match=match, stages=stages)

    def quota(self, user):
        """None where there is no such quota that the caller may see."""
        return self.query("query ($user: String!) { quota(user: $user) { user size used email } }", user=user)["quota"]

    # the ways to ask

    def query(self, document, **variables):
        """The data of any query or mutation. Raises Refused, or OSError where the gateway cannot be reached."""
        with self._post("/graphql", document, variables, "application/json", ANSWER_SECONDS) as answer:
            try:
                text = answer.read().decode()
            except http.client.HTTPException as error:
                raise ConnectionError("the answer broke off") from error
        return _data_of(json.loads(text))

    def subscribe(self, document, **variables):
        """Each result of a subscription, until the gateway says that it is complete. Raises OSError where the stream breaks off."""
        with self._post("/graphql/stream", document, variables, "text/event-stream", SILENCE_SECONDS) as stream:
            event = None
            for line in stream:
                name, _, value = line.decode().rstrip("\r\n").partition(": ")
                if name == "event":
                    event = value.strip()
                if event == "complete":
                    return
                if name == "data" and event == "next":
                    yield _data_of(json.loads(value))
        raise ConnectionError("%s has ended the stream" % self.url)

    def _post(self, path, document, variables, accept, seconds):
        headers = {"Content-Type": "application/json", "Accept": accept}
        if self.token:
            _check_listener(self.url)
            headers["Authorization"] = "Bearer %s" % self.token
        body = json.dumps({"query": document, "variables": _given(variables)}, default=_json_value).encode()
        try:
            return self._http.open(urllib.request.Request(self.url + path, body, headers), timeout=seconds)
        except urllib.error.HTTPError as error:
            with error:
                raise _refusal_of(error) from None

    def _change(self, field, declared, **variables):
        name = field.split("(", 1)[0]
        return _unless_refused(self.query("mutation (%s) { %s }" % (declared, field), **variables)[name])

    def _pages(self, document, page_of, **variables):
        after = None
        while True:
            page = page_of(self.query(document, after=after, **variables))
            for edge in page["edges"]:
                yield edge["node"]
            if not page["pageInfo"]["hasNextPage"]:
                return
            after = page["pageInfo"]["endCursor"]


def _checked_url(url):
    try:
        parts = urllib.parse.urlsplit(url)
        if parts.scheme in ("http", "https") and parts.hostname and parts.port != 0:
            return url.rstrip("/")
    except ValueError:
        pass  # a port that is no number, say
    raise ValueError("the URL of a gateway (TAPEGATE_URL) begins with http:// or https:// and a host, unlike %s" % json.dumps(url))


def _path_on_disk(file):
    """Returns where a file is: its restored copy or its primary copy. None after its copy was removed."""
    return file["path"] if file["isAtPrimaryPlace"] else file["restoredPath"]


def _why_lost(disk):
    suspension = disk and disk["suspension"]
    if suspension and suspension["nextTry"]:
        return "on %s, which fails: %s" % (disk["mountpoint"], suspension["reason"])
    return "no longer on disk"


def _json_value(value):
    """Returns what JSON has for a value of Python. A datetime without a zone is UTC. Raises TypeError for others."""
    if isinstance(value, datetime.datetime):
        return (value if value.tzinfo else value.replace(tzinfo=datetime.timezone.utc)).isoformat()
    if isinstance(value, datetime.date):
        return value.isoformat()
    if isinstance(value, pathlib.PurePath):
        return value.as_posix()
    if isinstance(value, os.PathLike):
        return os.fsdecode(value)
    if isinstance(value, collections.abc.Iterable) and not isinstance(value, (bytes, bytearray)):
        return list(value)
    raise TypeError("%s is not a value that GraphQL takes: %r" % (type(value).__name__, value))


def _given(values):
    return {name: value for name, value in values.items() if value is not None}


def _data_of(answer):
    errors = answer.get("errors")
    if errors:
        raise Refused(errors[0]["message"], errors[0].get("extensions", {}).get("code"))
    return _exact(answer["data"])


def _exact(value):
    """Integers in the place of the texts as which they are sent."""
    if isinstance(value, list):
        return [_exact(each) for each in value]
    if not isinstance(value, dict):
        return value
    return {name: int(each) if name in INTEGERS and isinstance(each, str) else _exact(each) for name, each in value.items()}


def _unless_refused(result):
    if "code" in result:
        raise Refused(result["message"], result["code"], result)
    return {name: value for name, value in result.items() if name != "__typename"}


def _refusal_of(error):
    """A gateway that cannot answer just now is one that cannot be reached; any other answer is its last word."""
    try:
        first = json.loads(error.read().decode())["errors"][0]
        message, code = first["message"], first.get("extensions", {}).get("code")
    except (ValueError, KeyError, IndexError, TypeError, OSError):
        message, code = "the gateway answers %d" % error.code, None
    if error.code in (429, 502, 503, 504):
        return ConnectionError(message)
    return Refused(message, code)


def _kept_token(url):
    """What `tapegate login` has kept. One of an identity provider that has ended is renewed by the command line, and not here."""
    folder = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    try:
        with open(os.path.join(folder, "tapegate", "tokens.json")) as file:
            found = os.fstat(file.fileno())
            if hasattr(os, "getuid") and (found.st_uid != os.getuid() or found.st_mode & 0o077):
                raise Refused("%s must be yours, and for nobody else to read: chmod 600, and make new tokens" % file.name)
            return json.load(file)[url]["token"]
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _check_listener(url):
    """Raises Refused if another user of this host listens at an http URL: while the gateway is down, any user can take its port."""
    parts = urllib.parse.urlsplit(url)
    if parts.scheme != "http":
        return
    port = parts.port or 80
    try:
        hosts = {found[4][0].partition("%")[0] for found in socket.getaddrinfo(parts.hostname, port, type=socket.SOCK_STREAM)}
    except OSError:
        return  # no connection is made either
    for uid in {uid for host in hosts for uid in _listeners(host, port)}:
        if not _is_expected(uid):
            raise Refused("%s is a port of the user with the id %d on this host, and not of root, you, the user tapegate or the owner of "
                          "DATA_DIR: no token is sent there" % (url, uid))


def _listeners(host, port):
    """Yields the users who listen on a port at an address or at all addresses of this host, where it runs Linux."""
    wanted = ipaddress.ip_address({"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host))
    try:
        with socket.socket(socket.AF_INET6 if wanted.version == 6 else socket.AF_INET, socket.SOCK_DGRAM) as own:
            own.bind((str(wanted), 0))
    except OSError:
        return  # an address of another host
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            with open(table) as file:
                lines = file.readlines()[1:]
        except OSError:
            continue
        for _, local, _, state, _, _, _, uid, *_ in map(str.split, lines):
            packed, _, own_port = local.partition(":")
            if state != "0A" or int(own_port, 16) != port:
                continue
            # the kernel prints words of four bytes in the order of the processor
            words = struct.unpack(">%dI" % (len(packed) // 8), bytes.fromhex(packed))
            address = ipaddress.ip_address(struct.pack("=%dI" % len(words), *words))
            address = getattr(address, "ipv4_mapped", None) or address
            if address.is_unspecified or address == wanted:
                yield int(uid)


def _is_expected(uid):
    import pwd  # there is none on Windows
    data_dir = os.environ.get("DATA_DIR")
    if uid in (0, os.getuid()) or (data_dir and os.path.exists(data_dir) and os.stat(data_dir).st_uid == uid):
        return True
    try:
        return pwd.getpwnam("tapegate").pw_uid == uid
    except KeyError:
        return False


# the commands


class _Incomplete(Exception):
    """A request that has ended without all of its files."""


class _Usage(Exception):
    """A command that was given what it cannot take."""


def main(arguments=None):
    given = _parser().parse_args(arguments)
    try:
        tapes = Tapegate(given.url)
    except ValueError as error:
        return _fail(error, USAGE)
    except Refused as error:
        return _fail(error, FAILED)
    try:
        given.run(tapes, given)
    except _Usage as error:
        return _fail(error, USAGE)
    except (_Incomplete, NotOnDisk) as error:
        return _fail(error, INCOMPLETE)
    except Refused as error:
        return _fail(error, FAILED)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        sys.stderr.close()
        return 0
    except OSError as error:
        return _fail("%s cannot be reached: %s" % (tapes.url, getattr(error, "reason", error)), FAILED)
    return 0


def _fail(error, code):
    _note("tapegate: %s" % error)
    return code


def _parser():
    parser = argparse.ArgumentParser(
        prog="tapegate.py", description="Files of tape, asked for and watched.",
        epilog="Exit codes: 0 success, 1 failure, 2 wrong usage, 3 a request ended without all of its files.")
    parser.add_argument("--url", help="of the gateway; TAPEGATE_URL unless given")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    commands.required = True

    def command(name, run, description, with_id=False):
        each = commands.add_parser(name, help=description, description=description)
        each.set_defaults(run=run)
        each.add_argument("--json", action="store_true", help="one object of JSON a line")
        if with_id:
            each.add_argument("id", type=int)
        return each

    ask = command("request", _request, "ask for files")
    ask.add_argument("--quota", help="the user whose quota is charged; unless given your own, else that of your oldest membership")
    ask.add_argument("--pattern", help="all files whose path contains the text, now and later")
    ask.add_argument("--file", action="append", metavar="PATH")
    ask.add_argument("--label")
    ask.add_argument("--dry-run", action="store_true", help="say what it would take, and ask for nothing")
    ask.add_argument("--watch", action="store_true", help="tell its steps until nothing is left to do")
    listed = command("requests", _requests, "requests that may be seen, the oldest first")
    listed.add_argument("--quota")
    command("show", _show, "one request", with_id=True)
    command("watch", _watch, "the steps of a request", with_id=True)
    command("paths", _paths, "where its files are on disk", with_id=True)
    command("retry", lambda tapes, given: _tell(given, tapes.retry(given.id)), "try again what has failed", with_id=True)
    command("cancel", lambda tapes, given: _tell(given, tapes.cancel(given.id)), "end a request", with_id=True)
    let_go = command("release", lambda tapes, given: _tell(given, tapes.release(given.id, match=given.match)), "let files go", with_id=True)
    let_go.add_argument("--match", help="those whose path contains the text; all unless given")
    found = command("ls", _ls, "files of the catalogue")
    found.add_argument("match", nargs="?")
    command("quota", _quota, "a quota, and what is used of it").add_argument("user")
    return parser


def _request(tapes, given):
    if (given.pattern is None) == (given.file is None):
        raise _Usage("give either --pattern or --file")
    given.quota = given.quota or _own_quota(tapes)
    if given.dry_run:
        estimate = tapes.estimate(given.quota, files=given.file, pattern=given.pattern)
        line = "%s, %s: %d on disk, %d from tape on %s" % (
            _plural(estimate["files"], "file"), _plural(estimate["bytes"], "byte"),
            estimate["filesOnDisk"], estimate["filesToRecall"], _plural(estimate["volumes"], "volume"))
        _print(given, estimate, line)
        return _require_possible(given, estimate)
    request = tapes.create_request(given.quota, files=given.file, pattern=given.pattern, label=given.label)
    _tell(given, request)
    if given.watch:
        given.id = request["requestId"]
        _watch(tapes, given)
    elif request["state"] in ("COMPLETED", "PARTIAL"):
        _require_all(tapes, request)
    else:
        for line in _missing(request):
            _note(line)


def _own_quota(tapes):
    """Returns the default of the caller whose token is shown. Raises _Usage for a caller without one."""
    caller = tapes.query("{ caller { name way roles defaultQuota } }")["caller"]
    if caller["defaultQuota"]:
        return caller["defaultQuota"]
    if "user" not in caller["roles"] or caller["way"] == "open":
        raise _Usage("give --quota: %s has none of its own" % caller["name"])
    return caller["name"]


def _require_possible(given, estimate):
    """Raises Refused for an estimate over the quota, and _Incomplete for one without all named files."""
    if not estimate["isEnough"]:
        free = max(estimate["quotaSize"] - estimate["quotaUsed"], 0)
        raise Refused("quota %s is full: %s requested, %s of %s free; release files or cancel requests that are no longer needed" % (
            json.dumps(given.quota), _size(estimate["bytes"]), _size(free), _size(estimate["quotaSize"])))
    if estimate["filesUnknown"] > 0:
        more = ["  and %d more" % (estimate["filesUnknown"] - NAMED)] if estimate["filesUnknown"] > NAMED else []
        names = ["  %s" % path for path in estimate["unknownPaths"][:NAMED]]
        what = "%s not in the catalogue:" % _plural(estimate["filesUnknown"], "path")
        raise _Incomplete("\n".join([what, *names, *more]))
    if estimate["files"] == 0:
        raise _Incomplete(_no_match(given.pattern or ""))


def _watch(tapes, given):
    for step in tapes.follow(given.id):
        line = "%s %d of %s, %d failed, %d of %s" % (
            step["state"], step["filesOnDisk"], _plural(step["filesTotal"], "file"), step["filesFailed"],
            step["bytesOnDisk"], _plural(step["bytesTotal"], "byte"))
        _print(given, step, line)
    request = tapes.request(given.id)
    if request:
        _require_all(tapes, request)


def _require_all(tapes, request):
    """Raises _Incomplete for a request that has ended without all of its files, with what it lacks."""
    if request["state"] == "COMPLETED":
        missing = _missing(request)
        if missing:
            raise _Incomplete("request %d has finished without all of its files: %s" % (request["requestId"], "; ".join(missing)))
        return
    lines = ["request %d is %s" % (request["requestId"], request["state"])]
    if request["state"] == "PARTIAL":
        lines[0] += ": %d of %s failed" % (request["filesFailed"], _plural(request["filesTotal"], "file"))
        lines += _reasons(tapes, request)
    raise _Incomplete("\n".join(lines))


def _missing(request):
    """What it has no file for; what is beyond its own limits was meant to be."""
    lines = []
    held = request["filesTotal"] + request["filesReleased"] + request["filesUnknown"] + request["filesRefused"] + request["filesOverLimit"]
    if request["pattern"] and held == 0:
        lines.append(_no_match(request["pattern"]))
    if request["filesUnknown"] > 0:
        lines.append("%s not in the catalogue" % _plural(request["filesUnknown"], "path"))
    if request["filesRefused"] > 0:
        lines.append("%s without room in the quota" % _plural(request["filesRefused"], "file"))
    return lines


def _reasons(tapes, request):
    """Why its first files have failed, a line each."""
    failed = itertools.islice(tapes.request_files(request["requestId"], states=["FAILED"]), NAMED)
    lines = [_printable("  %s: %s" % (item["file"]["path"], item["error"])) for item in failed]
    if request["filesFailed"] > len(lines) > 0:
        lines.append("  and %d more" % (request["filesFailed"] - len(lines)))
    return lines


def _requests(tapes, given):
    for request in tapes.requests(quota=given.quota):
        _tell(given, request)


def _show(tapes, given):
    request = tapes.request(given.id)
    if request is None:
        raise Refused("there is no request %d" % given.id)
    _tell(given, request)
    if not given.json and request["filesFailed"] > 0:
        for line in _reasons(tapes, request):
            print(line)
    if not given.json:
        for line in _missing(request):
            print(_printable(line))


def _paths(tapes, given):
    for path in tapes.restored_paths(given.id):
        if not given.json and re.search(r"[\n\r]", path):
            raise Refused("%s has several lines: --json prints each path on one line" % json.dumps(path, ensure_ascii=False))
        # whoever reads them from a pipe needs each as it is
        print(json.dumps(path) if given.json else _printable(path) if sys.stdout.isatty() else path, flush=True)


def _ls(tapes, given):
    file = None
    for file in tapes.files(match=given.match):
        _print(given, file, "%-10s %14d  %s" % (file["stage"], file["size"], file["restoredPath"] or file["path"]))
    if file is None and given.match:
        _note(_no_match(given.match))


def _no_match(text):
    wildcards = ", and * ? [ ] stand for themselves" if re.search(r"[*?\[\]]", text) else ""
    return "no file of the catalogue has %s in its path (upper and lower case differ%s)" % (json.dumps(text, ensure_ascii=False), wildcards)


def _quota(tapes, given):
    quota = tapes.quota(given.user)
    if quota is None:
        raise Refused("there is no quota %s" % json.dumps(given.user))
    _print(given, quota, "%s: %d of %s used" % (quota["user"], quota["used"], _plural(quota["size"], "byte")))


def _tell(given, request):
    failed = ", %d failed" % request["filesFailed"] if request["filesFailed"] > 0 else ""
    missing = request["filesUnknown"] + request["filesRefused"]
    unknown = "; %s not found" % _plural(request["filesUnknown"], "name") if request["filesUnknown"] > 0 else ""
    line = "request %d is %s: %d of %s%s%s, kept until %s" % (
        request["requestId"], request["state"], request["filesOnDisk"], _plural(request["filesTotal"] + missing, "file"), failed, unknown,
        request["retention"])
    _print(given, request, line)


def _plural(count, one):
    return "%d %s" % (count, one if count == 1 else one + "s")


def _size(count):
    """Three digits and a decimal unit: 1.50 MB."""
    if count < 1000:
        return _plural(count, "byte")
    exponent = min((len(str(count)) - 1) // 3, 6)
    value = count / 1000 ** exponent
    return "%.*f %s" % (2 if value < 10 else 1 if value < 100 else 0, value, ["kB", "MB", "GB", "TB", "PB", "EB"][exponent - 1])


def _print(given, value, line):
    print(json.dumps(value) if given.json else _printable(line), flush=True)


def _note(text):
    """For people, beside what a script reads; lines of it stay lines."""
    for line in str(text).split("\n"):
        print(_printable(line), file=sys.stderr, flush=True)


def _printable(text):
    """Names come from users, and must not move the cursor of a terminal."""
    return UNSAFE.sub("\ufffd", text)


if __name__ == "__main__":
    sys.exit(main())
